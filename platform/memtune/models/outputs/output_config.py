"""The configurations of the output layers: each builds its module and gives its size and its cost.

A family passes the width of its hidden vectors, the embedding if the two tables are tied, and whether there
are biases; the configuration in its field `output` defines everything else.
"""

import math
from abc import abstractmethod
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import nn
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.outputs.adaptive_softmax import AdaptiveOutput, compute_projected_widths
from memtune.models.outputs.class_factored import ClassFactoredOutput
from memtune.models.outputs.output_layer import NoOutput, OutputLayer, SoftmaxOutput, find_chunk_rows
from memtune.models.outputs.word_classes import (
    ClassMass,
    compute_class_borders,
    compute_range_shares,
    compute_zipf_counts,
)
from memtune.plugins import ConfigRegistry, PluginConfig


class OutputLayerConfig(PluginConfig):
    """The configuration of an output layer: it builds the layer and computes its size and cost.

    `width` is the width of the hidden vectors; `tied` says whether the rows of the words are the embedding.
    """

    kind: str
    can_be_tied: ClassVar[bool]
    """Whether the layer has a row as wide as the hidden vectors for every word."""
    has_width_scaling: ClassVar[bool] = False
    """Whether muP is defined for it."""
    can_have_ngram_connections: ClassVar[bool]
    """Whether n-grams of words can be connected to it."""

    @abstractmethod
    def build(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> OutputLayer:
        """A new layer with uninitialised parameters.

        Raises ConfigurationError if the vocabulary is too small.
        """

    @abstractmethod
    def parameter_count(self, width: int, vocabulary_size: int, tied: bool = False, bias: bool = True) -> int:
        """Number of trained parameters by formula, without the rows of a tied embedding."""

    @abstractmethod
    def multiply_adds(self, width: int, vocabulary_size: int) -> int:
        """Multiply-adds of the matrix products that compute the probability of one word."""

    @abstractmethod
    def count_live_logits(self, rows: int, vocabulary_size: int) -> int:
        """Number of logits in memory at a time in a training step over `rows` rows on a CPU."""

    def describe(self) -> dict[str, str | int | float]:
        """The fields that distinguish the layer from a full softmax in a table; {} for a full softmax."""
        return {"output": self.kind}


class SoftmaxConfig(OutputLayerConfig):
    """A linear map to the vocabulary under one softmax."""

    kind: Literal["softmax"] = "softmax"
    has_width_scaling: ClassVar[bool] = True
    can_be_tied: ClassVar[bool] = True
    can_have_ngram_connections: ClassVar[bool] = True

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
    def count_live_logits(self, rows: int, vocabulary_size: int) -> int:
        return min(rows, find_chunk_rows("cpu", vocabulary_size)) * vocabulary_size

    @override
    def describe(self) -> dict[str, str | int | float]:
        return {}


class ClassFactoredConfig(OutputLayerConfig):
    """A softmax over classes of words and one over the words of each class (Goodman 2001, Mikolov 2011)."""

    kind: Literal["class_factored"] = "class_factored"
    can_be_tied: ClassVar[bool] = True
    can_have_ngram_connections: ClassVar[bool] = True
    classes: int | None = Field(
        None, ge=1, description="K: classes of words; as many as the root of the vocabulary when not given"
    )
    mass: ClassMass = Field(
        "frequency",
        description='What every class has an equal share of: "frequency", the counts of its words, or '
        '"square_root", the roots of these, which makes classes of rare words smaller',
    )

    def resolve_class_count(self, vocabulary_size: int) -> int:
        """K. Raises ConfigurationError if there are more classes than words."""
        if self.classes is None:
            return math.isqrt(vocabulary_size - 1) + 1
        if self.classes > vocabulary_size:
            raise ConfigurationError(
                f"output.classes must be at most the {vocabulary_size} words of the vocabulary, got "
                f"{self.classes}; leave it out for the root of their number"
            )
        return self.classes

    @override
    def build(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> ClassFactoredOutput:
        classes = self.resolve_class_count(vocabulary_size)
        return ClassFactoredOutput(width, vocabulary_size, classes, self.mass, tied_to, bias)

    @override
    def parameter_count(self, width: int, vocabulary_size: int, tied: bool = False, bias: bool = True) -> int:
        return self.resolve_class_count(vocabulary_size) * (width + bias) + vocabulary_size * (
            (0 if tied else width) + bias
        )

    @override
    def multiply_adds(self, width: int, vocabulary_size: int) -> int:
        """Multiply-adds for all classes and the words of one class: the mean over a text under Zipf's law."""
        classes = self.resolve_class_count(vocabulary_size)
        counts = compute_zipf_counts(vocabulary_size)
        borders = compute_class_borders(counts, classes, self.mass)
        sizes = (end - first for first, end in pairwise(borders))
        met = sum(
            share * size for share, size in zip(compute_range_shares(counts, borders), sizes, strict=True)
        )
        return width * (classes + math.ceil(met))

    @override
    def count_live_logits(self, rows: int, vocabulary_size: int) -> int:
        classes = self.resolve_class_count(vocabulary_size)
        return (
            rows * math.ceil(vocabulary_size / classes) + min(rows, find_chunk_rows("cpu", classes)) * classes
        )

    @override
    def describe(self) -> dict[str, str | int | float]:
        return super().describe() | {"classes": self.classes or "root"}


class AdaptiveConfig(OutputLayerConfig):
    """A softmax over the frequent words, and clusters of the others behind projections (Grave 2017)."""

    kind: Literal["adaptive"] = "adaptive"
    can_be_tied: ClassVar[bool] = False
    can_have_ngram_connections: ClassVar[bool] = False
    cutoffs: tuple[int, ...] | None = Field(
        None,
        min_length=1,
        description="First words of the clusters, by rank; 1/20 and 1/5 of the vocabulary when not given",
    )
    factor: int = Field(
        4, ge=1, description="How many times narrower than the one before the projection of a cluster is"
    )

    @model_validator(mode="after")
    def _check_cutoffs(self) -> Self:
        if self.cutoffs and any(later <= earlier for earlier, later in pairwise((0, *self.cutoffs))):
            raise ValueError(f"cutoffs must ascend from 1 or more, got {list(self.cutoffs)}")
        return self

    def resolve_cutoffs(self, vocabulary_size: int) -> list[int]:
        """The first words of the clusters. Raises ConfigurationError if one is not in the vocabulary."""
        if self.cutoffs is None:
            shares = {math.ceil(vocabulary_size / 20), math.ceil(vocabulary_size / 5)}
            return sorted(shares - {vocabulary_size})
        if self.cutoffs[-1] >= vocabulary_size:
            raise ConfigurationError(
                f"output.cutoffs must be below the {vocabulary_size} words of the vocabulary, got "
                f"{list(self.cutoffs)}; leave them out for 1/20 and 1/5 of it"
            )
        return list(self.cutoffs)

    @override
    def build(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> AdaptiveOutput:
        assert tied_to is None, "an adaptive softmax has no row as wide as an embedding for every word"
        return AdaptiveOutput(
            width, vocabulary_size, self.resolve_cutoffs(vocabulary_size), self.factor, bias
        )

    @override
    def parameter_count(self, width: int, vocabulary_size: int, tied: bool = False, bias: bool = True) -> int:
        head, clusters = self._compute_sizes(width, vocabulary_size)
        return head * (width + bias) + sum(
            projected * (width + words) + words * bias for projected, words in clusters
        )

    @override
    def multiply_adds(self, width: int, vocabulary_size: int) -> int:
        """Multiply-adds for the head, and for each cluster times its share of a text under Zipf's law."""
        head, clusters = self._compute_sizes(width, vocabulary_size)
        borders = [*self.resolve_cutoffs(vocabulary_size), vocabulary_size]
        shares = compute_range_shares(compute_zipf_counts(vocabulary_size), borders)
        within = (
            share * projected * (width + words)
            for share, (projected, words) in zip(shares, clusters, strict=True)
        )
        return width * head + math.ceil(sum(within))

    @override
    def count_live_logits(self, rows: int, vocabulary_size: int) -> int:
        head, clusters = self._compute_sizes(1, vocabulary_size)
        softmaxes = [head, *(words for _, words in clusters)]
        return max(min(rows, find_chunk_rows("cpu", size)) * size for size in softmaxes)

    @override
    def describe(self) -> dict[str, str | int | float]:
        return super().describe() | {"factor": self.factor}

    def _compute_sizes(self, width: int, vocabulary_size: int) -> tuple[int, list[tuple[int, int]]]:
        """The number of entries of the head, and the projected width and number of words of each cluster."""
        borders = [*self.resolve_cutoffs(vocabulary_size), vocabulary_size]
        words = [end - first for first, end in pairwise(borders)]
        projected = compute_projected_widths(width, len(words), self.factor)
        return borders[0] + len(words), list(zip(projected, words, strict=True))


class NoOutputConfig(OutputLayerConfig):
    """No output layer, for a task whose head reads the hidden vectors; it predicts no words."""

    kind: Literal["none"] = "none"
    has_width_scaling: ClassVar[bool] = True
    can_be_tied: ClassVar[bool] = True
    can_have_ngram_connections: ClassVar[bool] = False

    @override
    def build(
        self, width: int, vocabulary_size: int, tied_to: nn.Embedding | None = None, bias: bool = True
    ) -> NoOutput:
        return NoOutput()

    @override
    def parameter_count(self, width: int, vocabulary_size: int, tied: bool = False, bias: bool = True) -> int:
        return 0

    @override
    def multiply_adds(self, width: int, vocabulary_size: int) -> int:
        return 0

    @override
    def count_live_logits(self, rows: int, vocabulary_size: int) -> int:
        return 0


OUTPUTS: ConfigRegistry[OutputLayerConfig] = ConfigRegistry(
    "output layer",
    "memtune.outputs",
    "kind",
    OutputLayerConfig,  # type: ignore[type-abstract]
    (SoftmaxConfig, ClassFactoredConfig, AdaptiveConfig, NoOutputConfig),
    {"can_be_tied": True, "can_have_ngram_connections": True},
)
"""Kind -> the configuration of an output layer."""
OutputConfig = Annotated[OutputLayerConfig, OUTPUTS]
