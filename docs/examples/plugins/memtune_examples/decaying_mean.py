"""Decaying mean: one layer over a decaying mean of the embeddings of all words so far.

The simplest memory with a time constant, a baseline rather than a model of a paper:

    s_t = alpha s_{t-1} + (1 - alpha) x_t        (1)
    h_t = tanh(W s_t)                            (2)

Shapes: B batch, T time, H hidden width, V vocabulary.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from memtune.models.architecture import NeuralLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.shared_fields import InitialRange

__all__ = ["DecayingMeanConfig", "DecayingMeanLanguageModel"]


class DecayingMeanConfig(NeuralLanguageModelConfig):
    """A decaying mean under one layer."""

    family: Literal["decaying_mean"] = "decaying_mean"
    width: int = Field(128, ge=1, description="Width of the embeddings, of s and of h (equations 1 and 2)")
    alpha: float = Field(0.9, gt=0, lt=1, description="Share of s that each step keeps (equation 1)")
    initial_range: InitialRange = 0.05

    @override
    def build(self, vocabulary_size: int) -> "DecayingMeanLanguageModel":
        return DecayingMeanLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        output = self.output.parameter_count(self.width, vocabulary_size)
        return vocabulary_size * self.width + self.width**2 + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        return self.width**2 + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        return self.width

    @override
    def describe(self) -> dict[str, str | int | float]:
        return {"width": self.width, "alpha": self.alpha}


class DecayingMeanLanguageModel(NeuralLanguageModel):
    """Carried state: context s (B, H), zero at the start of a text."""

    config: DecayingMeanConfig

    def __init__(self, config: DecayingMeanConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.embedding = nn.Embedding(vocabulary_size, config.width)
        self.hidden = nn.Linear(config.width, config.width, bias=False)
        self.output = config.output.build(config.width, vocabulary_size)
        initialise_uniform(self, config.initial_range)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        return {"context": self.embedding.weight.new_zeros(batch_size, self.config.width)}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        context_BH = state["context"]
        contexts = []
        for input_BH in self.embedding(tokens_BT).unbind(1):
            context_BH = self.config.alpha * context_BH + (1 - self.config.alpha) * input_BH
            contexts.append(context_BH)
        hidden_BTH = self.hidden(torch.stack(contexts, dim=1)).tanh()
        return hidden_BTH, {"context": context_BH}
