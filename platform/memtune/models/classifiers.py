"""Classifier heads over the body of a family: for phrases of a sentence, pairs of sentences, and answers.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", sections 5.2 and 5.3:
the hidden states of the words are averaged, the means of two sentences are concatenated, and ReLU layers
below a linear layer compute the logits of the classes. A body depends only on earlier words, so padding on
the right of a sentence changes no state of its words, and the means exclude it.

`fused_pairs` has the LSTM-networks whose reader of the second sentence attends to the first.

Shapes: B batch, T time, S words of the premise, H width of the body, N spans, C classes.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.architecture import Encode, Model, NeuralLanguageModel, NeuralLanguageModelConfig
from memtune.models.outputs.output_config import NoOutputConfig, SoftmaxConfig
from memtune.values import Value


class ClassifierConfig(Value):
    """ReLU layers as wide as the body below a linear layer; every layer has a bias."""

    classes: int = Field(ge=2, json_schema_extra={"unit": "classes"})
    layers: int = Field(2, ge=0, description="Layers of ReLU")
    dropout: float = Field(0.0, ge=0, lt=1, description="Probability that a value below the last is dropped")

    def build(self, input_width: int, width: int) -> nn.Sequential:
        """The layers, with torch's default initialisation."""
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


def average_spans(hidden_BTH: Tensor, rows_N: Tensor, starts_N: Tensor, stops_N: Tensor) -> Tensor:
    """means_NH of the hidden states of the words `start` to `stop` - 1 of a row, at least one in each span.

    Words outside all spans change no mean. The sum of a span is the difference of two running sums, so the
    cost does not depend on the lengths of spans. Running sums are in float64: in float32 the mean of one word
    at the end of a long sentence would lose digits.
    """
    sums_BTH = hidden_BTH.cumsum(1, dtype=torch.float64)
    last_NH = sums_BTH[rows_N, stops_N - 1]
    before_NH = sums_BTH[rows_N, (starts_N - 1).clamp(min=0)] * (starts_N > 0).unsqueeze(1)
    return ((last_NH - before_NH) / (stops_N - starts_N).unsqueeze(1)).to(hidden_BTH.dtype)


def average_sentences(hidden_BTH: Tensor, lengths_B: Tensor) -> Tensor:
    """means_BH of the hidden states of each row, from its first word to its length."""
    rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
    return average_spans(hidden_BTH, rows_B, torch.zeros_like(lengths_B), lengths_B)


def strip_output_layer(config: NeuralLanguageModelConfig) -> NeuralLanguageModelConfig:
    """The configuration of a family's body, without the output layer.

    Raises ConfigurationError if a field concerns the prediction of words, which a classifier does not use.
    """
    if problem := config.find_classifier_problem():
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


class Classifier(Model):
    """A head over one body that reads words, or over two."""

    config: NeuralLanguageModelConfig
    readers: nn.ModuleList
    head: nn.Sequential

    def __init__(self, config: NeuralLanguageModelConfig, vocabulary_size: int, readers: int = 1) -> None:
        """A subclass builds its head afterwards: initial values are drawn in this order."""
        super().__init__()
        self.config, self.vocabulary_size = config, vocabulary_size
        body = strip_output_layer(config)
        self.readers = nn.ModuleList(body.build(vocabulary_size) for _ in range(readers))

    @override
    def require_network(self, purpose: str) -> NeuralLanguageModel:
        """The reader of sentences, or that of the first sentence of a pair."""
        reader = self.readers[0]
        assert isinstance(reader, NeuralLanguageModel)
        return reader

    def find_embedding_tables(self) -> list[nn.Embedding]:
        """The word embeddings of the readers.

        Raises ConfigurationError for a family that has no single table of word embeddings.
        """
        found = [getattr(reader, "embedding", None) for reader in self.readers]
        tables = [table for table in found if isinstance(table, nn.Embedding)]
        if len(tables) < len(found):
            raise ConfigurationError(
                f'family = "{self.config.family}" has no single table of word embeddings'
            )
        return tables

    @override
    def on_validation(self, valid_costs: Sequence[float]) -> None:
        for reader in self.readers:
            assert isinstance(reader, Model)
            reader.on_validation(valid_costs)

    @override
    def wrap_body(self, wrap: Callable[[NeuralLanguageModel], Encode]) -> None:
        for reader in self.readers:
            assert isinstance(reader, Model)
            reader.wrap_body(wrap)


class SentenceClassifier(Classifier):
    """A classifier of phrases: each is the mean of the states after its words. A sentence is a phrase."""

    def __init__(
        self, config: NeuralLanguageModelConfig, vocabulary_size: int, head: ClassifierConfig
    ) -> None:
        super().__init__(config, vocabulary_size)
        self.head = head.build(config.hidden_width, config.hidden_width)

    @override
    def forward(self, words_BT: Tensor, rows_N: Tensor, starts_N: Tensor, stops_N: Tensor) -> Tensor:
        """logits_NC of spans; a span is the words `start` to `stop` - 1 of a row."""
        means_NH = average_spans(_encode(self.readers[0], words_BT), rows_N, starts_N, stops_N)
        logits_NC: Tensor = self.head(means_NH)
        return logits_NC


class PairClassifier(Classifier):
    """A classifier of pairs of sentences that are read independently, by one reader or by two."""

    def __init__(
        self, config: NeuralLanguageModelConfig, vocabulary_size: int, head: ClassifierConfig, shared: bool
    ) -> None:
        super().__init__(config, vocabulary_size, 1 if shared else 2)
        self.head = head.build(2 * config.hidden_width, config.hidden_width)

    @override
    def forward(
        self, premises_BS: Tensor, premises_B: Tensor, hypotheses_BT: Tensor, hypotheses_B: Tensor
    ) -> Tensor:
        """logits_BC of the pairs, from the words and the length of each sentence."""
        if len(self.readers) == 1:
            longest = max(premises_BS.shape[1], hypotheses_BT.shape[1])
            words = [pad(each, (0, longest - each.shape[1])) for each in (premises_BS, hypotheses_BT)]
            hidden_PTH = _encode(self.readers[0], torch.cat(words))
            means_PH = average_sentences(hidden_PTH, torch.cat([premises_B, hypotheses_B]))
            means_BH = list(means_PH.chunk(2))
        else:
            means_BH = [
                average_sentences(_encode(reader, words_BT), lengths_B)
                for reader, words_BT, lengths_B in zip(
                    self.readers, (premises_BS, hypotheses_BT), (premises_B, hypotheses_B), strict=True
                )
            ]
        logits_BC: Tensor = self.head(torch.cat(means_BH, dim=1))
        return logits_BC


class AnswerClassifier(Classifier):
    """A classifier of answers within a row of words, by the vocabulary.

    An answer is read from the state after its word. With `reads_last_state` all answers of a row are read
    from the state after its last word, plus the sinusoids of their places (Vaswani et al. 2017, section 3.5).
    """

    def __init__(
        self,
        config: NeuralLanguageModelConfig,
        vocabulary_size: int,
        head: ClassifierConfig,
        reads_last_state: bool,
    ) -> None:
        super().__init__(config, vocabulary_size)
        self.reads_last_state = reads_last_state
        self.head = head.build(config.hidden_width, config.hidden_width)

    @override
    def forward(self, words_BT: Tensor, last_B: Tensor, rows_N: Tensor, places_N: Tensor) -> Tensor:
        """logits_NV of the answers at places of rows; `last_B` is the place of each row's last word."""
        hidden_BTH = _encode(self.readers[0], words_BT)
        if self.reads_last_state:
            states_NH = hidden_BTH[rows_N, last_B[rows_N]] + _make_sinusoids(places_N, hidden_BTH)
        else:
            states_NH = hidden_BTH[rows_N, places_N]
        logits_NV: Tensor = self.head(states_NH)
        return logits_NV


def _make_sinusoids(places_N: Tensor, hidden_BTH: Tensor) -> Tensor:
    """Sine and cosine of places at geometric wavelengths, as wide as the hidden vectors and of their type."""
    width = hidden_BTH.shape[2]
    columns_H = torch.arange(width, device=places_N.device)
    angles_NH = places_N[:, None] / 10_000 ** ((columns_H // 2) * 2 / width)
    return torch.where(columns_H % 2 == 0, angles_NH.sin(), angles_NH.cos()).to(hidden_BTH.dtype)


def _encode(reader: nn.Module, words_BT: Tensor) -> Tensor:
    """hidden_BTH of whole sentences, from the initial state."""
    assert isinstance(reader, NeuralLanguageModel)
    hidden_BTH, _ = reader.encode(words_BT, reader.initial_state(len(words_BT)))
    return hidden_BTH
