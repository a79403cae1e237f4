"""A network and a maximum-entropy n-gram model, trained together under one softmax.

Mikolov, Deoras, Povey, Burget and Černocký (2011), "Strategies for Training Large Scale Neural Network
Language Models". The logits of the next word are those of the network's output layer plus one weight of the
word for each context of the last 0 to n - 1 words; see `outputs.hashed_ngrams`. An output layer with classes
adds such weights to the logits of the classes too. The weights start at zero.

Shapes: B batch, T time, P remembered words (at most n - 2), S size of the table.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.architecture import NeuralLanguageModel, RecurrentState, TreeReader
from memtune.models.layers.tree_levels import Trees, collect_ancestor_words
from memtune.models.memories.recent_words import keep_recent_words, make_empty_words
from memtune.models.outputs.class_factored import ClassFactoredOutput
from memtune.models.outputs.hashed_ngrams import Slices, hash_contexts
from memtune.models.outputs.output_layer import OutputLayer, SoftmaxOutput
from memtune.values import Value


class MaximumEntropyConfig(Value):
    """Hashed n-gram connections from the last words to the output layer."""

    order: int = Field(
        3, ge=1, description="n of the longest n-grams: contexts are the last 0 to n - 1 words"
    )
    size: int = Field(
        2**22,
        ge=1,
        description="Weights in the table, at least as many as words; n-grams share them by chance",
    )

    @property
    def carried_words(self) -> int:
        """Words before the present one that a text carries from word to word."""
        return max(0, self.order - 2)


NgramConnections = Annotated[
    MaximumEntropyConfig | None,
    Field(description="Hashed n-gram connections to the output layer (see maximum entropy)"),
]
"""The field of a family that can have them."""


def add_ngram_connections(body: NeuralLanguageModel, connections: NgramConnections) -> NeuralLanguageModel:
    """The body with n-gram connections; the body itself if `connections` is None."""
    return body if connections is None else MaximumEntropyLanguageModel(body, connections)


class MaximumEntropyLanguageModel(NeuralLanguageModel):
    """Carried state: the state of the network, and the last words, (B, P)."""

    output: "_NgramConnectedOutput"

    def __init__(self, body: NeuralLanguageModel, connections: MaximumEntropyConfig) -> None:
        super().__init__()
        if connections.size < body.vocabulary_size:
            raise ConfigurationError(
                f"maximum_entropy.size must be at least the {body.vocabulary_size} words of the vocabulary, "
                f"got {connections.size}; use a larger table"
            )
        self.config = body.config
        self.vocabulary_size = body.vocabulary_size
        self.order, self.carried_words = connections.order, connections.carried_words
        self.body = body
        self.output = _NgramConnectedOutput(body.output, connections.size)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        words_BP = make_empty_words(batch_size, self.output.table_S.device)
        return {**self.body.initial_state(batch_size), "words": words_BP}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden_BTH, after = self.body.encode(tokens_BT, state)
        words_BK = torch.cat([state["words"], tokens_BT], dim=1)
        return hidden_BTH, {**after, "words": keep_recent_words(words_BK, self.carried_words)}

    @override
    def collect_contexts(self, tokens_BT: Tensor, state: RecurrentState) -> dict[str, Tensor]:
        words_BK = torch.cat([state["words"], tokens_BT], dim=1)
        return {"contexts_NO": hash_contexts(words_BK, tokens_BT.shape[1], self.order)}

    def read_trees(self, trees: Trees) -> Tensor:
        """The hidden vectors of the network, which must be a `TreeReader`."""
        assert isinstance(self.body, TreeReader), "the configuration says which families read trees"
        return self.body.read_trees(trees)

    def tree_nats(self, trees: Trees, weights_N: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The result of `TreeReader.tree_nats`; n-grams consist of a word and its last ancestors."""
        words_NK = collect_ancestor_words(trees, max(1, self.order - 1))
        contexts_NO = hash_contexts(words_NK, 1, self.order).squeeze(1)
        targets_N = trees.words_N[trees.bounds[1] :]
        return self.output.negative_log_likelihood_by_row(
            self.read_trees(trees), targets_N, weights_N, contexts_NO
        )


class _NgramConnectedOutput(OutputLayer):
    """An output layer and the table of weights; every call needs the contexts of each row."""

    def __init__(self, layer: OutputLayer, size: int) -> None:
        super().__init__()
        assert isinstance(layer, SoftmaxOutput | ClassFactoredOutput), "others have no connections"
        self.layer = layer
        self.table_S = nn.Parameter(torch.zeros(size))

    @override
    def forward(self, hidden_H: Tensor, contexts_NO: Tensor | None = None) -> Tensor:
        logits_V: Tensor = self.layer(hidden_H, self._select_slices(contexts_NO))
        return logits_V

    @override
    def negative_log_likelihood_by_row(
        self,
        hidden_NH: Tensor,
        targets_N: Tensor,
        weights_N: Tensor | None = None,
        contexts_NO: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        slices = self._select_slices(contexts_NO)
        return self.layer.negative_log_likelihood_by_row(hidden_NH, targets_N, weights_N, slices)

    @override
    def set_word_counts(self, counts: Sequence[int]) -> None:
        self.layer.set_word_counts(counts)

    def _select_slices(self, contexts_NO: Tensor | None) -> Slices:
        assert contexts_NO is not None, "n-gram connections read words too: ask the model for its logits"
        return Slices(self.table_S, contexts_NO)
