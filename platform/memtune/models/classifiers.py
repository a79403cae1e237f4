"""Heads over the body of a family: classes of phrases of a sentence, or of a pair of sentences.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", sections 5.2 and 5.3:
the hidden states of the words are averaged, the means of two sentences stand side by side, and layers of ReLU
with a linear one above give the classes. Bodies only look back, so padding on the right of a sentence changes
no state of its words, and no mean takes account of it.

Two sentences may also be read by LSTM-networks of which the second looks at the first: see `fused_pairs`.

Shapes: B batch, T time, S words of the premise, H width of the body, N spans, C classes.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.interface import Architecture, Model, NeuralLanguageModel
from memtune.models.layers.pooling import Spans, span_means
from memtune.models.outputs import NoOutputConfig, SoftmaxConfig
from memtune.values import Value

__all__ = [
    "Classifier",
    "ClassifierConfig",
    "PairClassifier",
    "SentenceClassifier",
    "bare",
    "hidden_width",
]


class ClassifierConfig(Value):
    """Layers of ReLU as wide as the body, and a linear one above; biases everywhere."""

    classes: int = Field(ge=2)
    layers: int = Field(2, ge=0, description="Layers of ReLU")
    dropout: float = Field(0.0, ge=0, lt=1, description="Probability that a value below the last is dropped")

    def build(self, input_width: int, width: int) -> nn.Sequential:
        """The layers, as torch initialises them."""
        widths = [input_width, *[width] * self.layers]
        stack: list[nn.Module] = []
        for below, above in pairwise(widths):
            stack += [nn.Linear(below, above), nn.ReLU()]
        return nn.Sequential(*stack, nn.Dropout(self.dropout), nn.Linear(widths[-1], self.classes))

    def parameter_count(self, input_width: int, width: int) -> int:
        """Number of trained parameters."""
        biases = self.layers * width + self.classes
        return self.multiply_adds(input_width, width) + biases

    def multiply_adds(self, input_width: int, width: int) -> int:
        """Multiply-adds of one classification."""
        widths = [input_width, *[width] * self.layers, self.classes]
        return sum(below * above for below, above in pairwise(widths))


def bare(config: Architecture) -> Architecture:
    """The configuration of a family's body, without what predicts words.

    Raises ConfigurationError where there is more to the family than a head could make use of.
    """
    if problem := config.unfit_as_body():
        raise ConfigurationError(problem)
    if config.output not in (SoftmaxConfig(), NoOutputConfig()):
        raise ConfigurationError(
            f'output.kind = "{config.output.kind}" predicts words, a classifier does not; leave output out, '
            'or, where a space has it, write output = { kind = "none" } under [model] of the study'
        )
    if getattr(config, "maximum_entropy", None):
        raise ConfigurationError(
            "maximum_entropy connects n-grams to words, a classifier predicts none; leave maximum_entropy out"
        )
    return config.model_copy(update={"output": NoOutputConfig()})


def hidden_width(config: Architecture) -> int:
    """Width of what the body gives after each word: what a full softmax over one word costs."""
    whole = config.model_copy(update={"output": SoftmaxConfig()})
    return whole.multiply_adds(1) - bare(config).multiply_adds(1)


class Classifier(Model):
    """A head over one reader of words, or two."""

    config: Architecture
    readers: nn.ModuleList
    head: nn.Sequential

    def tables(self) -> list[nn.Embedding]:
        """The readers' word embeddings; a ConfigurationError for a family that has no one table of them."""
        found = [getattr(reader, "embedding", None) for reader in self.readers]
        tables = [table for table in found if isinstance(table, nn.Embedding)]
        if len(tables) < len(found):
            raise ConfigurationError(f'family = "{self.config.family}" has no one table of word embeddings')
        return tables

    @override
    def heed(self, valid_costs: Sequence[float]) -> None:
        for reader in self.readers:
            assert isinstance(reader, Model)
            reader.heed(valid_costs)

    @override
    def compile_body(self) -> None:
        for reader in self.readers:
            assert isinstance(reader, Model)
            reader.compile_body()


class SentenceClassifier(Classifier):
    """Classes of phrases, each the mean of the states after its words; a sentence is a phrase too."""

    def __init__(self, config: Architecture, vocabulary_size: int, head: ClassifierConfig) -> None:
        super().__init__()
        self.config, self.vocabulary_size = config, vocabulary_size
        self.readers = nn.ModuleList([bare(config).build(vocabulary_size)])
        self.head = head.build(hidden_width(config), hidden_width(config))

    @override
    def forward(self, words_BT: Tensor, rows_N: Tensor, starts_N: Tensor, stops_N: Tensor) -> Tensor:
        """logits_NC of spans of the sentences: words `start` to `stop` - 1 of a row."""
        means_NH = span_means(_read(self.readers[0], words_BT), Spans(rows_N, starts_N, stops_N))
        logits_NC: Tensor = self.head(means_NH)
        return logits_NC


class PairClassifier(Classifier):
    """Classes of pairs of sentences that are read apart, by one reader or by two with all of their own."""

    def __init__(
        self, config: Architecture, vocabulary_size: int, head: ClassifierConfig, shared: bool
    ) -> None:
        super().__init__()
        self.config, self.vocabulary_size = config, vocabulary_size
        body, width = bare(config), hidden_width(config)
        self.readers = nn.ModuleList(body.build(vocabulary_size) for _ in range(1 if shared else 2))
        self.head = head.build(2 * width, width)

    @override
    def forward(
        self, premises_BS: Tensor, premises_B: Tensor, hypotheses_BT: Tensor, hypotheses_B: Tensor
    ) -> Tensor:
        """logits_BC of the pairs, from their words and how many words each sentence has."""
        if len(self.readers) == 1:
            means_BH = self._read_together(premises_BS, premises_B, hypotheses_BT, hypotheses_B)
        else:
            means_BH = [
                span_means(_read(reader, words_BT), Spans.from_the_start(lengths_B))
                for reader, words_BT, lengths_B in zip(
                    self.readers, (premises_BS, hypotheses_BT), (premises_B, hypotheses_B), strict=True
                )
            ]
        logits_BC: Tensor = self.head(torch.cat(means_BH, dim=1))
        return logits_BC

    def _read_together(
        self, premises_BS: Tensor, premises_B: Tensor, hypotheses_BT: Tensor, hypotheses_B: Tensor
    ) -> list[Tensor]:
        """The means of premises and of hypotheses, read by one reader side by side."""
        longest = max(premises_BS.shape[1], hypotheses_BT.shape[1])
        words = [pad(words_BT, (0, longest - words_BT.shape[1])) for words_BT in (premises_BS, hypotheses_BT)]
        hidden_PTH = _read(self.readers[0], torch.cat(words))
        means_PH = span_means(hidden_PTH, Spans.from_the_start(torch.cat([premises_B, hypotheses_B])))
        return list(means_PH.chunk(2))


def _read(reader: nn.Module, words_BT: Tensor) -> Tensor:
    """hidden_BTH of sentences from their start."""
    assert isinstance(reader, NeuralLanguageModel)
    hidden_BTH, _ = reader.encode(words_BT, reader.initial_state(len(words_BT)))
    return hidden_BTH
