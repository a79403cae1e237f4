"""An output layer: a softmax whose weight is a product of two narrow matrices.

logits = V (U h) + b with U of rank x width and V of words x rank.

Shapes: N rows, H hidden width, R rank, V vocabulary.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.outputs.output_config import OutputLayerConfig
from memtune.models.outputs.output_layer import OutputLayer

__all__ = ["LowRankConfig", "LowRankOutput"]


class LowRankConfig(OutputLayerConfig):
    """A softmax over a product of two narrow matrices."""

    kind: Literal["low_rank"] = "low_rank"
    can_be_tied: ClassVar[bool] = False
    can_have_ngram_connections: ClassVar[bool] = False
    rank: int = Field(16, ge=1, description="R: width between the two matrices")

    @override
    def build(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> "LowRankOutput":
        return LowRankOutput(width, self.rank, vocabulary_size, bias)

    @override
    def parameter_count(self, width: int, vocabulary_size: int, tied: bool = False, bias: bool = True) -> int:
        return self.rank * (width + vocabulary_size) + vocabulary_size * bias

    @override
    def multiply_adds(self, width: int, vocabulary_size: int) -> int:
        return self.rank * (width + vocabulary_size)

    @override
    def count_live_logits(self, rows: int, vocabulary_size: int) -> int:
        return rows * vocabulary_size

    @override
    def describe(self) -> dict[str, str | int | float]:
        return super().describe() | {"rank": self.rank}


class LowRankOutput(OutputLayer):
    """The layer; the family that uses it draws the initial values of its parameters."""

    def __init__(self, width: int, rank: int, vocabulary_size: int, bias: bool) -> None:
        super().__init__()
        self.narrow = nn.Linear(width, rank, bias=False)
        self.words = nn.Linear(rank, vocabulary_size, bias=bias)

    @override
    def forward(self, hidden_H: Tensor) -> Tensor:
        logits: Tensor = self.words(self.narrow(hidden_H))
        return logits

    @override
    def negative_log_likelihood_by_row(
        self, hidden_NH: Tensor, targets_N: Tensor, weights_N: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        nats_N = functional.cross_entropy(self(hidden_NH), targets_N, reduction="none")
        weighted_N = nats_N if weights_N is None else torch.where(weights_N > 0, nats_N * weights_N, 0.0)
        return weighted_N.sum(), nats_N.detach()
