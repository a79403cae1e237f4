"""The output layers every family can end in, as configurations: their modules, sizes and costs.

A family says how wide what it predicts from is, whether its words' rows are those of its embedding, and
whether it has biases; the configuration in its field `output` does the rest.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import nn
from typing_extensions import override

from memtune.models.layers.output import OutputLayer, SoftmaxOutput, rows_per_chunk
from memtune.values import Value

__all__ = ["OutputArchitecture", "OutputConfig", "SoftmaxConfig"]


class OutputArchitecture(Value, ABC):
    """The configuration of an output layer: enough to build it, and to know its size and cost before.

    `width` is that of the hidden vectors, `tied` whether the words' rows are those of the embedding.
    """

    kind: str
    can_be_tied: ClassVar[bool]
    """Whether the layer has a row as wide as the hidden vectors for every word."""

    @abstractmethod
    def build(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> OutputLayer:
        """A new layer with its parameters unset; a ConfigurationError when the vocabulary is too small."""

    @abstractmethod
    def parameter_count(self, width: int, vocabulary_size: int, tied: bool = False, bias: bool = True) -> int:
        """Number of trained parameters, by formula; the rows of an embedding are not the layer's."""

    @abstractmethod
    def multiply_adds(self, width: int, vocabulary_size: int) -> int:
        """Multiply-adds of the matrix products that give one word its probability."""

    @abstractmethod
    def logits_held(self, rows: int, vocabulary_size: int) -> int:
        """Logits that exist at once, on a CPU, while `rows` rows are trained on."""

    def describe(self) -> dict[str, str | int | float]:
        """What tells the layer from a full softmax in a table; nothing when it is one."""
        return {"output": self.kind}


class SoftmaxConfig(OutputArchitecture):
    """A linear map to the vocabulary under one softmax."""

    kind: Literal["softmax"] = "softmax"
    can_be_tied: ClassVar[bool] = True

    @override
    def build(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> SoftmaxOutput:
        return SoftmaxOutput(width, vocabulary_size, tied_to, bias)

    @override
    def parameter_count(self, width: int, vocabulary_size: int, tied: bool = False, bias: bool = True) -> int:
        return vocabulary_size * ((0 if tied else width) + bias)

    @override
    def multiply_adds(self, width: int, vocabulary_size: int) -> int:
        return width * vocabulary_size

    @override
    def logits_held(self, rows: int, vocabulary_size: int) -> int:
        return min(rows, rows_per_chunk("cpu", vocabulary_size)) * vocabulary_size

    @override
    def describe(self) -> dict[str, str | int | float]:
        return {}


OutputConfig = SoftmaxConfig
