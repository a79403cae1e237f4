"""The feed-forward n-gram network: the embeddings of the last words concatenated, one hidden layer, softmax.

Bengio, Ducharme, Vincent and Janvin (2003), "A Neural Probabilistic Language Model", section 2, equation 1:

    y = b + W x + U tanh(d + H x),   x = (C(w_{t-1}), ..., C(w_{t-n+1}))

where W x are the direct connections, which are optional. Words before the text have zero vectors. It is
the "shallow feed-forward" row of Beneš, Baskar and Burget (2017), table 1.

Shapes: B batch, T time, P earlier words (at most n - 2), K = n - 2 + T words, E width of an embedding, F
width of the input of the output layer, V vocabulary.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import NeuralLanguageModelConfig, RecurrentState, WindowLanguageModel
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.shared_fields import InitialRange
from memtune.models.memories.recent_words import keep_recent_words


class FeedForwardConfig(NeuralLanguageModelConfig):
    """A feed-forward n-gram network; the defaults have about 2M parameters on Penn Treebank."""

    family: Literal["feed_forward"] = "feed_forward"
    width: int = Field(100, ge=1, description="h: hidden units (section 2)")
    embedding_width: int | None = Field(
        None, ge=1, description="m: features of a word (section 2); None is as many as hidden units"
    )
    order: int = Field(5, ge=2, description="n: a word is predicted from the n - 1 before it (section 2)")
    direct: bool = Field(
        False, description="Direct connections W from the words' features to the output (equation 1)"
    )
    initial_range: InitialRange = 0.05

    @override
    def build(self, vocabulary_size: int) -> "FeedForwardLanguageModel":
        return FeedForwardLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        hidden = self.width * (self.feature_count + 1)
        output = self.output.parameter_count(self.output_width, vocabulary_size)
        return vocabulary_size * self.features_per_word + hidden + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        return self.width * self.feature_count + self.output.multiply_adds(self.output_width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The words before the present one."""
        return self.order - 2

    @override
    def describe(self) -> dict[str, str | int | float]:
        fields = self.select_fields("width", "embedding_width", "order", "direct")
        return fields | {"embedding_width": self.features_per_word}

    @property
    def features_per_word(self) -> int:
        """m, the width of an embedding."""
        return self.embedding_width or self.width

    @property
    def feature_count(self) -> int:
        """Length of x: the features of n - 1 words."""
        return (self.order - 1) * self.features_per_word

    @property
    def output_width(self) -> int:
        """Width of the input of the output layer: the hidden units and, with direct connections, x."""
        return self.width + (self.feature_count if self.direct else 0)


class FeedForwardLanguageModel(WindowLanguageModel):
    """Carried state: the last words, (B, P). U and W lie side by side in the output layer's weight."""

    config: FeedForwardConfig

    def __init__(self, config: FeedForwardConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.max_history_words = config.order - 2
        self.embedding = nn.Embedding(vocabulary_size, config.features_per_word)
        self.hidden = nn.Linear(config.feature_count, config.width)
        self.output = config.output.build(config.output_width, vocabulary_size)
        initialise_uniform(self, config.initial_range)

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        before, steps = self.max_history_words, tokens_BT.shape[1]
        words_BK = torch.cat([state["words"], tokens_BT], dim=1)
        missing = before + steps - words_BK.shape[1]
        vectors_BKE = functional.pad(self.embedding(words_BK), (0, 0, missing, 0))
        features_BTF = torch.cat([vectors_BKE[:, k : k + steps] for k in range(before + 1)], dim=2)
        read_BTF = self.hidden(features_BTF).tanh()
        if self.config.direct:
            read_BTF = torch.cat([read_BTF, features_BTF], dim=2)
        return read_BTF, {"words": keep_recent_words(words_BK, before)}
