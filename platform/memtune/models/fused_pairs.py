"""Pairs of sentences read by LSTM-networks; the reader of the second attends to the tape of the first.

Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading", section 4. The first
reader runs over the premise as in section 3.2 and writes a tape of gamma_j and alpha_j. Each word of the
hypothesis attends to this tape (equations 10 to 12). Shallow fusion adds the attended gamma~ to the attended
h~ in the input of the gates, with the same weights. Deep fusion adds alpha~ to the new memory through a gate
(equations 13 to 15). The classifier reads the means of both hidden tapes, without padding (section 5.3).

The attention of the hypothesis to the premise depends on no state of the reader of the hypothesis. It is
therefore computed for all words first; then the reader runs once with the recurrence of the LSTM-network.

With E = 300 and one reader for both sentences, the matrices have 10 d^2 + 6 d E entries for shallow and
12 d^2 + 7 d E for deep fusion, 3 d^2 of them in the classifier. These are all six sizes printed in table 3.

Shapes: B batch, S words of the premise, T words of the hypothesis, E embedding, H width, D = 2H a slot
(gamma_j or h_i, then alpha_j or c_i), C classes.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models import classifiers
from memtune.models.architecture import NeuralLanguageModelConfig
from memtune.models.compilation import leave_uncompiled
from memtune.models.families.lstmn import LSTMNConfig, LSTMNLanguageModel, LSTMNLayer
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.memories.memory_tape import run_memory_tape
from memtune.values import Value

MEAN_PREMISE_WORDS = 14
"""Words of a mean premise of the corpus of section 5.3, whose hypotheses have about 8."""


class PairReadingConfig(Value):
    """How two sentences are read; the defaults reproduce the parameter counts of table 3."""

    fusion: Literal["none", "shallow", "deep"] = Field(
        "none",
        description='What the reader of the hypothesis reads of the premise: "none", nothing; '
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
    def has_recurrent_attention(self) -> bool:
        """Whether the attention to the premise depends on the vector attended to at the previous step."""
        given = self.previous_source_attention
        return self.fusion == "deep" if given is None else given

    def build_classifier(
        self, config: NeuralLanguageModelConfig, vocabulary_size: int, head: classifiers.ClassifierConfig
    ) -> classifiers.Classifier:
        """A new model. Raises ConfigurationError if the family does not support this fusion."""
        if self.fusion == "none":
            return classifiers.PairClassifier(config, vocabulary_size, head, self.shared_reader)
        return FusedPairClassifier(_require_fusible(config, self.fusion), vocabulary_size, self, head)

    def pair_parameter_count(
        self, config: NeuralLanguageModelConfig, vocabulary_size: int, head: classifiers.ClassifierConfig
    ) -> int:
        """Number of trained parameters of the classifier, by formula."""
        width = config.hidden_width
        readers = (1 if self.shared_reader else 2) * classifiers.strip_output_layer(config).parameter_count(
            vocabulary_size
        )
        apart = readers + head.parameter_count(2 * width, width)
        if self.fusion == "none":
            return apart
        # u, W_gamma, W_x and W_gamma~ of equation 10, and W_r of equation 13 with its bias.
        input_width = _require_fusible(config, self.fusion).input_width
        attention = width + width * (width + input_width + self.has_recurrent_attention * width)
        return apart + attention + (self.fusion == "deep") * width * (width + input_width + 1)

    def pair_multiply_adds(
        self, config: NeuralLanguageModelConfig, head: classifiers.ClassifierConfig
    ) -> int:
        """Multiply-adds of the matrix products per word of a mean pair: forward pass with the head."""
        width, words = config.hidden_width, MEAN_PREMISE_WORDS + 8
        fusion = head.multiply_adds(2 * width, width)
        if self.fusion != "none":
            config = _require_fusible(config, self.fusion)
            query = width * (config.input_width + self.has_recurrent_attention * width)
            gate = width * (config.input_width + width) if self.fusion == "deep" else 4 * width * width
            reading = MEAN_PREMISE_WORDS * 3 * width  # a score, gamma and alpha of each slot
            fusion += MEAN_PREMISE_WORDS * width * width + 8 * (query + gate + reading)
        return classifiers.strip_output_layer(config).multiply_adds(1) + fusion // words


def _require_fusible(config: NeuralLanguageModelConfig, fusion: str) -> LSTMNConfig:
    if isinstance(config, LSTMNConfig) and config.layers == 1:
        return config
    layers = f" of {config.layers} layers" if isinstance(config, LSTMNConfig) else ""
    raise ConfigurationError(
        f'fusion = "{fusion}" joins two LSTM-networks of one layer, not family = "{config.family}"{layers}; '
        f'use family = "lstmn" with layers = 1, or fusion = "none"'
    )


class FusedPairClassifier(classifiers.Classifier):
    """A classifier of pairs of sentences in which the reader of the second attends to the first."""

    config: LSTMNConfig

    def __init__(
        self,
        config: LSTMNConfig,
        vocabulary_size: int,
        reading: PairReadingConfig,
        head: classifiers.ClassifierConfig,
    ) -> None:
        super().__init__(config, vocabulary_size, 1 if reading.shared_reader else 2)
        width, input_width = config.width, config.input_width
        self.source = _SourceAttention(input_width, width, reading.has_recurrent_attention)
        self.gate = nn.Linear(width + input_width, width) if reading.fusion == "deep" else None
        self.starts_from_premise = reading.first_slot == "premise"
        initialise_uniform(self.source, config.initial_range)
        if self.gate is not None:
            initialise_uniform(self.gate, config.initial_range)
        self.head = head.build(2 * width, width)

    @override
    def forward(
        self, premises_BS: Tensor, premises_B: Tensor, hypotheses_BT: Tensor, hypotheses_B: Tensor
    ) -> Tensor:
        """logits_BC of the pairs, from the words and the length of each sentence."""
        first, second, width = self._get_reader(0), self._get_reader(-1), self.config.width
        state = first.initial_state(len(premises_BS))
        tape_BND, _, _ = first.layers[0](
            first.dropout.input(first.embedding(premises_BS)), state["tape"][:, 0], state["attended"][:, 0]
        )
        tape_BSD = tape_BND[:, 1:]  # of the words
        inputs_BTE = second.dropout.input(second.embedding(hypotheses_BT))
        word_S = torch.arange(premises_BS.shape[1], device=premises_BS.device)
        attended_BTD, _ = self.source(inputs_BTE, tape_BSD, word_S < premises_B.unsqueeze(1))
        rows_B = torch.arange(len(premises_B), device=premises_B.device)
        last_B1D = tape_BSD[rows_B, premises_B - 1].unsqueeze(1)
        slot_B1D = last_B1D if self.starts_from_premise else torch.zeros_like(last_B1D)
        hidden_BTH = self._encode_hypothesis(inputs_BTE, attended_BTD, slot_B1D)
        means_BH = [
            classifiers.average_sentences(first.dropout.output(states_BTH), lengths_B)
            for states_BTH, lengths_B in ((tape_BSD[:, :, :width], premises_B), (hidden_BTH, hypotheses_B))
        ]
        logits_BC: Tensor = self.head(torch.cat(means_BH, dim=1))
        return logits_BC

    def _get_reader(self, index: int) -> LSTMNLanguageModel:
        reader = self.readers[index]
        assert isinstance(reader, LSTMNLanguageModel)
        return reader

    def _encode_hypothesis(self, inputs_BTE: Tensor, attended_BTD: Tensor, slot_B1D: Tensor) -> Tensor:
        """hidden_BTH; the attended vector of the premise enters the gates (shallow) or the memory (deep)."""
        layer = self._get_reader(-1).layers[0]
        assert isinstance(layer, LSTMNLayer)
        gamma_BTH, alpha_BTH = attended_BTD.chunk(2, dim=2)
        attended_BH = torch.zeros_like(gamma_BTH[:, 0])
        if self.gate is None:
            added_TBH, weights = None, layer.tape_weights().extend_gate_inputs()
            inputs_BTE = torch.cat([inputs_BTE, gamma_BTH], dim=2)
        else:
            gate_BTH = self.gate(torch.cat([gamma_BTH, inputs_BTE], dim=2)).sigmoid()
            added_TBH, weights = _to_time_major(gate_BTH * alpha_BTH), layer.tape_weights()
        hidden_BTH: Tensor = run_memory_tape(
            _to_time_major(inputs_BTE), weights, slot_B1D, attended_BH, layer.max_slots, added_TBH
        )[0][:, 1:, : self.config.width]
        return hidden_BTH


class _SourceAttention(nn.Module):
    """The parameters of equation 10."""

    def __init__(self, input_width: int, width: int, recurrent: bool) -> None:
        super().__init__()
        self.key = nn.Linear(width, width, bias=False)
        self.query_input = nn.Linear(input_width, width, bias=False)
        self.query_attended = nn.Linear(width, width, bias=False) if recurrent else None
        self.score = nn.Parameter(torch.empty(width))

    @override
    @leave_uncompiled  # it would unroll the loop for each length
    def forward(self, inputs_BTE: Tensor, tape_BSD: Tensor, mask_BS: Tensor) -> tuple[Tensor, Tensor]:
        """attended_BTD (gamma~_t, then alpha~_t) and weights_BTS; each premise has a word with a true mask.

        Before the first step gamma~ is zero. The steps run in the parameters' dtype, also under autocast.
        """
        width, kind = len(self.score), self.score.dtype
        queries_BTH = self.query_input(inputs_BTE).to(kind)
        keys_BSH, tape_BSD = self.key(tape_BSD[:, :, :width]).to(kind), tape_BSD.to(kind)
        found, weights = list[Tensor](), list[Tensor]()
        with torch.autocast(self.score.device.type, enabled=False):
            for query_BH in queries_BTH.unbind(1):
                if found and self.query_attended is not None:
                    query_BH = query_BH + self.query_attended(found[-1][:, :width])
                scores_BS = (keys_BSH + query_BH.unsqueeze(1)).tanh() @ self.score
                weights.append(scores_BS.masked_fill(~mask_BS, -torch.inf).softmax(dim=1))
                found.append(torch.bmm(weights[-1].unsqueeze(1), tape_BSD).squeeze(1))
        return torch.stack(found, dim=1), torch.stack(weights, dim=1)


def _to_time_major(values_BTH: Tensor) -> Tensor:
    return values_BTH.transpose(0, 1).contiguous()
