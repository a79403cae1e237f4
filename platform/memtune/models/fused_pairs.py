"""Two sentences read by LSTM-networks of which the second looks at what the first wrote.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", section 4. The premise
is read as in section 3.2 and leaves a tape of gamma_j and alpha_j. Each word of the hypothesis attends to it
(equations 10 to 12). In shallow fusion what it finds, gamma~, is added to the attended h~ in the gates'
input, whose weights serve both. In deep fusion a gate lets alpha~ into the new memory (equations 13 to 15).
The means of both hidden tapes, over real words alone, go to the classifier (section 5.3).

The attention of the hypothesis to the premise depends on no state of the reader of the hypothesis. So it is
taken for all words first, and then the reader runs once, its recurrence as in the LSTM-network alone.

With E = 300 and one reader for both sentences, the matrices are 10 d^2 + 6 d E for shallow and 12 d^2 + 7 d E
for deep fusion, the classifier's 3 d^2 among them: all six sizes printed in table 3.

Shapes: B batch, S words of the premise, T words of the hypothesis, E embedding, H width, D = 2H a slot
(gamma_j or h_i, then alpha_j or c_i), C classes.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import dropout
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.classifiers import Classifier, ClassifierConfig, PairClassifier, bare, hidden_width
from memtune.models.interface import Architecture
from memtune.models.layers.initialisation import uniform
from memtune.models.layers.memory_tape import read_and_write
from memtune.models.layers.pooling import Spans, span_means
from memtune.models.layers.source_attention import attend_to_source
from memtune.models.lstmn import LSTMNConfig, LSTMNLanguageModel, LSTMNLayer
from memtune.values import Value

__all__ = ["FusedPairClassifier", "PairReading"]

MEAN_SLOTS = 14
"""Words of a mean premise of the corpus of section 5.3, whose hypotheses have about 8."""


class PairReading(Value):
    """How two sentences are read; the defaults are those that the sizes of table 3 ask for."""

    fusion: Literal["none", "shallow", "deep"] = Field(
        "none",
        description='What the reader of the hypothesis sees of the premise: "none", the two are read apart; '
        '"shallow" and "deep" as in section 4',
    )
    shared_reader: bool = Field(
        True,
        description="Whether one reader, its embeddings included, reads both sentences: the printed sizes; "
        "the released code has two",
    )
    previous_source_attention: bool | None = Field(
        None,
        description="Whether what a word attends to in the premise depends on what the word before did, "
        "W_gamma~ gamma~ in equation 10; when not given it does in deep fusion and not in shallow, as in the "
        "printed sizes",
    )
    first_slot: Literal["zeros", "premise"] = Field(
        "zeros",
        description='The slot that the first word of the hypothesis reads: "zeros", or the premise\'s last, '
        "as in the released code of deep fusion",
    )

    @property
    def recurrent(self) -> bool:
        """Whether the attention to the premise depends on what it found the step before."""
        given = self.previous_source_attention
        return self.fusion == "deep" if given is None else given

    def classifier(self, config: Architecture, vocabulary_size: int, head: ClassifierConfig) -> Classifier:
        """A new model; a ConfigurationError for a family that cannot be read so."""
        if self.fusion == "none":
            return PairClassifier(config, vocabulary_size, head, self.shared_reader)
        return FusedPairClassifier(_fusible(config, self.fusion), vocabulary_size, self, head)

    def pair_parameter_count(self, config: Architecture, vocabulary_size: int, head: ClassifierConfig) -> int:
        """Number of trained parameters of that model, by formula."""
        width = hidden_width(config)
        readers = (1 if self.shared_reader else 2) * bare(config).parameter_count(vocabulary_size)
        return readers + head.parameter_count(2 * width, width) + self._fusion_parameters(config)

    def pair_multiply_adds(self, config: Architecture, head: ClassifierConfig) -> int:
        """Multiply-adds of the matrix products per word of a mean pair, forward, the head included."""
        width, words = hidden_width(config), MEAN_SLOTS + 8
        fusion = head.multiply_adds(2 * width, width)
        if self.fusion != "none":
            config = _fusible(config, self.fusion)
            query = width * (config.input_width + self.recurrent * width)
            gate = width * (config.input_width + width) if self.fusion == "deep" else 4 * width * width
            reading = MEAN_SLOTS * 3 * width  # a score, gamma and alpha of each slot
            fusion += MEAN_SLOTS * width * width + 8 * (query + gate + reading)
        return bare(config).multiply_adds(1) + fusion // words

    def _fusion_parameters(self, config: Architecture) -> int:
        """u, W_gamma, W_x and W_gamma~ of equation 10, and W_r of equation 13 with its bias."""
        if self.fusion == "none":
            return 0
        config = _fusible(config, self.fusion)
        width, input_width = config.width, config.input_width
        attention = width + width * (width + input_width + self.recurrent * width)
        return attention + (width * (width + input_width + 1) if self.fusion == "deep" else 0)


def _fusible(config: Architecture, fusion: str) -> LSTMNConfig:
    if isinstance(config, LSTMNConfig) and config.layers == 1:
        return config
    layers = f" of {config.layers} layers" if isinstance(config, LSTMNConfig) else ""
    raise ConfigurationError(
        f'fusion = "{fusion}" joins two LSTM-networks of one layer, not family = "{config.family}"{layers}; '
        f'take family = "lstmn" with layers = 1, or fusion = "none"'
    )


class FusedPairClassifier(Classifier):
    """Classes of pairs of sentences, the second read in sight of the first."""

    config: LSTMNConfig

    def __init__(
        self, config: LSTMNConfig, vocabulary_size: int, reading: PairReading, head: ClassifierConfig
    ) -> None:
        super().__init__()
        self.config, self.vocabulary_size = config, vocabulary_size
        width, input_width = config.width, config.input_width
        body = bare(config)
        count = 1 if reading.shared_reader else 2
        self.readers = nn.ModuleList(body.build(vocabulary_size) for _ in range(count))
        self.source = _SourceAttention(input_width, width, reading.recurrent)
        self.gate = nn.Linear(width + input_width, width) if reading.fusion == "deep" else None
        self.starts_from_premise = reading.first_slot == "premise"
        uniform(self.source, config.initial_range)
        if self.gate is not None:
            uniform(self.gate, config.initial_range)
        self.head = head.build(2 * width, width)

    @override
    def forward(
        self, premises_BS: Tensor, premises_B: Tensor, hypotheses_BT: Tensor, hypotheses_B: Tensor
    ) -> Tensor:
        """logits_BC of the pairs, from their words and how many words each sentence has."""
        first, second = self._reader(0), self._reader(-1)
        tape_BSD = _premise_tape(first, premises_BS)
        inputs_BTE = second.embedding(hypotheses_BT)
        found_BTD, _ = self.source(inputs_BTE, tape_BSD, _words_of(premises_BS, premises_B))
        last_B1D = _last_slots(tape_BSD, premises_B)
        slot_B1D = last_B1D if self.starts_from_premise else torch.zeros_like(last_B1D)
        hidden_BTH = self._read_hypothesis(inputs_BTE, found_BTD, slot_B1D)
        width = self.config.width
        means_BH = [
            span_means(self._shown(states_BTH), Spans.from_the_start(lengths_B))
            for states_BTH, lengths_B in ((tape_BSD[:, :, :width], premises_B), (hidden_BTH, hypotheses_B))
        ]
        logits_BC: Tensor = self.head(torch.cat(means_BH, dim=1))
        return logits_BC

    @torch.no_grad()
    def alignment(self, premises_BS: Tensor, premises_B: Tensor, hypotheses_BT: Tensor) -> Tensor:
        """weights_BTS of each word of a hypothesis over the words of its premise (equation 11)."""
        tape_BSD = _premise_tape(self._reader(0), premises_BS)
        inputs_BTE = self._reader(-1).embedding(hypotheses_BT)
        _, weights_BTS = self.source(inputs_BTE, tape_BSD, _words_of(premises_BS, premises_B))
        aligned_BTS: Tensor = weights_BTS
        return aligned_BTS

    def _reader(self, index: int) -> LSTMNLanguageModel:
        reader = self.readers[index]
        assert isinstance(reader, LSTMNLanguageModel)
        return reader

    def _shown(self, hidden_BTH: Tensor) -> Tensor:
        """What dropout leaves of the states that are averaged, where it is placed after the layer."""
        if self.config.dropout_placement != "after":
            return hidden_BTH
        return dropout(hidden_BTH, self.config.dropout, self.training)

    def _read_hypothesis(self, inputs_BTE: Tensor, found_BTD: Tensor, slot_B1D: Tensor) -> Tensor:
        """hidden_BTH; what was found in the premise enters the gates (shallow) or the memory (deep)."""
        layer = self._reader(-1).layers[0]
        assert isinstance(layer, LSTMNLayer)
        gamma_BTH, alpha_BTH = found_BTD.chunk(2, dim=2)
        attended_BH = torch.zeros_like(gamma_BTH[:, 0])
        if self.gate is None:
            added_TBH, weights = None, layer.tape_weights().reading_beside()
            inputs_BTE = torch.cat([inputs_BTE, gamma_BTH], dim=2)
        else:
            gate_BTH = self.gate(torch.cat([gamma_BTH, inputs_BTE], dim=2)).sigmoid()
            added_TBH, weights = _by_time(gate_BTH * alpha_BTH), layer.tape_weights()
        hidden_BTH: Tensor = read_and_write(
            _by_time(inputs_BTE), weights, slot_B1D, attended_BH, layer.limit, added_TBH
        )[0][:, 1:, : self.config.width]
        return hidden_BTH


class _SourceAttention(nn.Module):
    """The weights of equation 10."""

    def __init__(self, input_width: int, width: int, recurrent: bool) -> None:
        super().__init__()
        self.key = nn.Linear(width, width, bias=False)
        self.query_input = nn.Linear(input_width, width, bias=False)
        self.query_attended = nn.Linear(width, width, bias=False) if recurrent else None
        self.score = nn.Parameter(torch.empty(width))

    @override
    def forward(self, inputs_BTE: Tensor, tape_BSD: Tensor, mask_BS: Tensor) -> tuple[Tensor, Tensor]:
        """found_BTD (gamma~_t, then alpha~_t) and weights_BTS."""
        recurrent = self.query_attended
        found_TBD, weights_BTS = attend_to_source(
            _by_time(self.query_input(inputs_BTE)),
            self.key(tape_BSD[:, :, : len(self.score)]),
            tape_BSD,
            self.score,
            None if recurrent is None else recurrent.weight,
            mask_BS,
        )
        return found_TBD.transpose(0, 1), weights_BTS


def _premise_tape(reader: LSTMNLanguageModel, premises_BS: Tensor) -> Tensor:
    """Slots of gamma_j and alpha_j, one a word."""
    layer, state = reader.layers[0], reader.initial_state(len(premises_BS))
    tape_BND, _, _ = layer(reader.embedding(premises_BS), state["tape"][:, 0], state["attended"][:, 0])
    slots_BSD: Tensor = tape_BND[:, 1:]
    return slots_BSD


def _words_of(words_BS: Tensor, lengths_B: Tensor) -> Tensor:
    """True where a word is, false where padding is."""
    return torch.arange(words_BS.shape[1], device=words_BS.device) < lengths_B.unsqueeze(1)


def _last_slots(tape_BSD: Tensor, lengths_B: Tensor) -> Tensor:
    """slot_B1D of the last word of each row."""
    rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
    return tape_BSD[rows_B, lengths_B - 1].unsqueeze(1)


def _by_time(values_BTH: Tensor) -> Tensor:
    return values_BTH.transpose(0, 1).contiguous()
