"""An LSTM that attends over its own K previous hidden states: random access memory.

Yogatama et al. (2018), "Memory Architectures in Recurrent Neural Network Language Models", section 2; with
`split="key_value_predict"` each hidden state has a part for each role, as in Daniluk, Rocktäschel, Welbl and
Riedel (2017), "Frustratingly Short Attention Spans in Neural Language Modeling", section 2.

The states before step t are h_0 (zeros) to h_{t-1}, so the first word attends to h_0 alone.

Shapes: B batch, T time, H width, n slots (the paper's K), P remembered states (1 to n), K = n - 1 + T states
that the windows slide over, R what is remembered of a state, D and C the parts of it that are key and value
(each H when a state is not split), F the part that predicts.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.errors import ConfigurationError
from memtune.models.architecture import EmbeddingLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.lstm_stack import LSTMStack
from memtune.models.layers.regularisation import Regularisation
from memtune.models.layers.shared_fields import CandidateDropout, InitialRange, InputForgetBias, LayerDropout
from memtune.models.memories import window_attention as windows
from memtune.models.memories.composition import build_linear_combination
from memtune.models.memories.memory_traces import AttentionTrace, MemoryTrace

ScoreKind = Literal["additive", "bilinear", "printed"]


class AttentionLSTMConfig(NeuralLanguageModelConfig):
    """An attention-based LSTM; the defaults are the paper's Attention-10, without its dropout."""

    family: Literal["attention_lstm"] = "attention_lstm"
    memory_traces: ClassVar[tuple[MemoryTrace, ...]] = ("attention",)
    width: int = Field(
        650, ge=1, description="Width of the embeddings and of the hidden states (section 3.1)"
    )
    layers: int = Field(1, ge=1, description="LSTM layers; the last one's states are attended to")
    memory_size: int = Field(10, ge=1, description="K: the previous states attended to (section 2)")
    score: ScoreKind = Field(
        "additive",
        description='Score of state h_i at step t: "additive" v tanh(W_m h_i + W_h h_t), "bilinear" h_i W '
        'h_t, or "printed" w h_i: the term in h_t of section 2 is the same for every i and cancels',
    )
    split: Literal["none", "key_value_predict"] = Field(
        "none",
        description='"none": the whole state is key, value and input of the prediction; "key_value_predict": '
        "a third of it for each, the remainder for the last (Daniluk et al., section 2.3); at least 3 wide",
    )
    dropout: LayerDropout = 0.0
    recurrent_dropout: CandidateDropout = 0.0
    tie_output: bool = Field(True, description="The output layer's weight is the embedding table (section 2)")
    initial_range: InitialRange = 0.05
    forget_bias: InputForgetBias = 1.0

    @property
    def key_width(self) -> int:
        """Width of the part of a state that is its key; the value has the same width."""
        return self.width if self.split == "none" else self.width // 3

    @property
    def memory_width(self) -> int:
        """Width of a remembered state: without the part that predicts."""
        return self.width if self.split == "none" else 2 * self.key_width

    @property
    def predict_width(self) -> int:
        """Width of the part of a state that predicts."""
        return self.width if self.split == "none" else self.width - 2 * self.key_width

    @override
    def build(self, vocabulary_size: int) -> "AttentionLSTMLanguageModel":
        if self.key_width == 0:
            raise ConfigurationError(
                f'width must be at least 3 to be split, got {self.width}; use a wider one or split = "none"'
            )
        return AttentionLSTMLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        width, key = self.width, self.key_width
        output = self.output.parameter_count(width, vocabulary_size, self.tie_output)
        stack = LSTMStack.count_parameters(width, width, self.layers)
        score = {"additive": 2 * key + 1, "bilinear": key, "printed": 1}[self.score] * key
        return vocabulary_size * width + stack + score + width * (key + self.predict_width) + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        width, key, slots = self.width, self.key_width, self.memory_size
        stack = LSTMStack.count_multiply_adds(width, width, self.layers)
        score = {"additive": 2 * key + slots, "bilinear": key + slots, "printed": 1}[self.score] * key
        combined = slots * key + width * (key + self.predict_width)
        return stack + score + combined + self.output.multiply_adds(width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The hidden state and the cell of each layer, and the remembered states."""
        return 2 * self.layers * self.width + self.memory_size * self.memory_width

    @override
    def describe(self) -> dict[str, str | int | float]:
        return self.select_fields(
            "width", "layers", "memory_size", "score", "split", "dropout", "recurrent_dropout"
        )


class AttentionLSTMLanguageModel(EmbeddingLanguageModel):
    """Carried state: hidden and cell, both (B, layers, H), and the remembered states, (B, P, R)."""

    config: AttentionLSTMConfig

    def __init__(self, config: AttentionLSTMConfig, vocabulary_size: int) -> None:
        width = config.width
        super().__init__(config, vocabulary_size, width)
        within = Regularisation(config.recurrent_dropout)
        self.stack = LSTMStack(width, width, config.layers, config.dropout, "between", within)
        self.score = SCORES[config.score](config.key_width)
        self.combination = build_linear_combination(config.key_width, config.predict_width, width)
        self.output = self.build_output(width)
        self.dropout = nn.Dropout(config.dropout)
        initialise_uniform(self, config.initial_range)
        self.stack.set_forget_bias(config.forget_bias)

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        first_B1R = self.embedding.weight.new_zeros(batch_size, 1, self.config.memory_width)
        return self.stack.initial_state(batch_size) | {"memory": first_B1R}

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden_BTH, states_BKR, weights_XLJ, after = self._attend(tokens_BT, state)
        values_BKC = states_BKR[..., -self.config.key_width :]
        context_BTC = windows.sum_values(weights_XLJ, values_BKC, tokens_BT.shape[1])
        predict_BTF = hidden_BTH[..., -self.config.predict_width :]
        combined_BTH: Tensor = self.dropout(self.combination(context_BTC, predict_BTF))
        return combined_BTH, after

    @override
    @torch.no_grad()
    def trace_attention(self, tokens_BT: Tensor, state: RecurrentState) -> AttentionTrace:
        weights_XLJ = self._attend(tokens_BT, state)[2]
        weights_BTn = windows.arrange_slots(weights_XLJ, *tokens_BT.shape)
        return AttentionTrace(weights_BTn.unsqueeze(0), tuple(range(-self.config.memory_size, 0)))

    def _attend(
        self, tokens_BT: Tensor, state: RecurrentState
    ) -> tuple[Tensor, Tensor, Tensor, RecurrentState]:
        """hidden_BTH of the LSTM, states_BKR that the windows slide over, the weights in the windows, and the
        state after the last word.
        """
        slots, key, before = self.config.memory_size, self.config.key_width, state["memory"].shape[1]
        hidden_BTH, after = self.stack(self.dropout(self.embedding(tokens_BT)), state)
        memory_BSR = torch.cat([state["memory"], hidden_BTH[..., : self.config.memory_width]], dim=1)
        # No step here reads the last hidden state.
        states_BKR = functional.pad(memory_BSR[:, :-1], (0, 0, slots - before, 0))
        absent_Tn = windows.mask_absent_slots(tokens_BT.shape[1], slots, before - 1, hidden_BTH.device)
        weights_XLJ = self.score(hidden_BTH[..., :key], states_BKR[..., :key], absent_Tn)
        return hidden_BTH, states_BKR, weights_XLJ, after | {"memory": memory_BSR[:, -slots:]}


class AdditiveScore(nn.Module):
    """v tanh(W_m h_i + W_h h_t); the projection of a state is computed once for all steps that read it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(width, width, bias=False)
        self.query = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    @override
    def forward(self, query_BTD: Tensor, keys_BKD: Tensor, absent_Tn: Tensor) -> Tensor:
        steps, slots = absent_Tn.shape
        projected_BKD, projected_BTD = self.key(keys_BKD), self.query(query_BTD)
        scores_BT1 = [
            self.score((projected_BKD[:, slot : slot + steps] + projected_BTD).tanh())
            for slot in range(slots)
        ]
        return windows.compute_banded_weights(torch.cat(scores_BT1, dim=2).masked_fill(absent_Tn, -torch.inf))


class BilinearScore(nn.Module):
    """h_i W h_t."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)

    @override
    def forward(self, query_BTD: Tensor, keys_BKD: Tensor, absent_Tn: Tensor) -> Tensor:
        projected_BTD = self.query(query_BTD)
        zeros_BTn = projected_BTD.new_zeros(len(query_BTD), *absent_Tn.shape)
        return windows.compute_weights(projected_BTD, keys_BKD, zeros_BTn.masked_fill(absent_Tn, -torch.inf))


class PrintedScore(nn.Module):
    """w h_i: a state has the same score at every step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1, bias=False)

    @override
    def forward(self, query_BTD: Tensor, keys_BKD: Tensor, absent_Tn: Tensor) -> Tensor:
        scores_BTn = self.score(keys_BKD).squeeze(2).unfold(1, absent_Tn.shape[1], 1)
        return windows.compute_banded_weights(scores_BTn.masked_fill(absent_Tn, -torch.inf))


SCORES: Mapping[ScoreKind, Callable[[int], nn.Module]] = {
    "additive": AdditiveScore,
    "bilinear": BilinearScore,
    "printed": PrintedScore,
}
"""Modules that map query_BTD, keys_BKD and absent_Tn to weights of `memories.window_attention`."""
