"""Recurrent memory networks: LSTM layers, a memory block on top, and in RMR more LSTM layers above it.

Tran, Bisazza and Monz (2016), "Recurrent Memory Networks for Language Modeling", sections 3 and 4.2. The
paper's RM(+tM-g) with three layers is `layers=3, temporal="keys", composition="gate"`; the bidirectional RM
of section 6 is the same with `bidirectional=True`: its slots are the n words up to the current one and the n
words after the word to predict, which has no slot itself. The temporal matrix T has 2n rows. A window of
2n + 1 places slides along the text, and its middle place, the word to predict, is always masked.

Shapes: B batch, T time, H width, n slots (on each side), s = 2n + 1 places, P earlier words (at most n - 1),
V vocabulary.
"""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.architecture import EmbeddingLanguageModel, NeuralLanguageModelConfig, RecurrentState
from memtune.models.layers.initializers import initialise_uniform
from memtune.models.layers.lstm_stack import LSTMStack
from memtune.models.layers.placed_dropout import DropoutPlacement
from memtune.models.layers.shared_fields import InputForgetBias, Probability, TieOutput
from memtune.models.memories import composition as compositions
from memtune.models.memories import window_attention as windows
from memtune.models.memories.memory_traces import AttentionTrace, MemoryTrace
from memtune.models.memories.recent_words import keep_recent_words, make_empty_words
from memtune.models.outputs.hashed_ngrams import BOUNDARY_ID

TemporalTables = Literal["none", "keys", "both"]
"""What temporal tables are added to: nothing, the input memories M (equation 2), or both M and C."""
TemporalAlignment = Literal["right", "left"]
"""The row of T that the current word reads while fewer than n words exist: the last ("right") or the t-th."""


class MemoryBlock(nn.Module):
    """Equations 1 to 3 and a composition, for all time steps together."""

    def __init__(
        self, config: "RecurrentMemoryConfig", input_table: nn.Embedding, output_table: nn.Embedding
    ) -> None:
        """`input_table` is M and `output_table` is C; a table that is both is looked up once."""
        super().__init__()
        self.slots, self.size, self.alignment = config.slots, config.memory_size, config.temporal_alignment
        self.input_table, self.output_table = input_table, output_table
        rows = (config.slots, config.width)
        self.temporal_keys = nn.Parameter(torch.empty(rows)) if config.temporal != "none" else None
        self.temporal_values = nn.Parameter(torch.empty(rows)) if config.temporal == "both" else None
        self.composition = compositions.build_composition(config.composition, config.width)

    def forward(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """h^m (B, T, H) for the hidden state after each of `words`, which follow the `earlier` words."""
        words_BK, history = self._pad_words(earlier_BP, words_BT)
        keys_BKH = self.input_table(words_BK)
        shared = self.output_table is self.input_table
        values_BKH = keys_BKH if shared else self.output_table(words_BK)
        steps = words_BT.shape[1]
        weights_XLJ = windows.compute_weights(
            hidden_BTH, keys_BKH, self._score_positions(hidden_BTH, words_BK, history)
        )
        context_BTH = windows.sum_values(weights_XLJ, values_BKH, steps)
        if self.temporal_values is not None:
            slots_BTn = windows.arrange_slots(weights_XLJ, len(words_BT), steps)
            context_BTH = context_BTH + self._slots_to_rows(slots_BTn, history) @ self.temporal_values
        composed_BTH: Tensor = self.composition(context_BTH, hidden_BTH)
        return composed_BTH

    def attention(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """p_t of equations 1 and 2 as weights_BTn; slots without a word have 0."""
        words_BK, history = self._pad_words(earlier_BP, words_BT)
        position_BTn = self._score_positions(hidden_BTH, words_BK, history)
        weights_XLJ = windows.compute_weights(hidden_BTH, self.input_table(words_BK), position_BTn)
        return windows.arrange_slots(weights_XLJ, *words_BT.shape)

    @property
    def slot_offsets(self) -> tuple[int, ...]:
        """The place of each slot's word relative to the current word."""
        return tuple(range(1 - self.slots, 1))

    def _pad_words(self, earlier_BP: Tensor, words_BT: Tensor) -> tuple[Tensor, int]:
        """The words with n - 1 words before them, padded on the left, and the number that are not padding."""
        history = earlier_BP.shape[1]
        words_BK = torch.cat([earlier_BP, words_BT], dim=1)
        return functional.pad(words_BK, (self.slots - 1 - history, 0)), history

    def _score_positions(self, hidden_BTH: Tensor, words_BK: Tensor, history: int) -> Tensor:
        """The term of each slot's position in its score, (B, T, n); -inf for a slot without a word."""
        batch_size, steps, _ = hidden_BTH.shape
        if self.temporal_keys is None:
            position_BTn = hidden_BTH.new_zeros(batch_size, steps, self.slots)
        else:
            position_BTn = self._rows_to_slots(hidden_BTH @ self.temporal_keys.t(), history)
        if history < self.slots - 1:
            absent_Tn = windows.mask_absent_slots(steps, self.slots, history, hidden_BTH.device)
            position_BTn = position_BTn.masked_fill(absent_Tn, -torch.inf)
        return position_BTn

    def _rows_to_slots(self, rows_BTn: Tensor, history: int) -> Tensor:
        """Scores by row of T as scores by slot; with left alignment the oldest word reads the first row."""
        if self.alignment == "right" or history >= self.slots - 1:
            return rows_BTn
        padded_BTm = functional.pad(rows_BTn, (self.slots, 0))
        slot_Tn = self._shift_indices(rows_BTn, history, sign=-1) + self.slots
        return padded_BTm.gather(2, slot_Tn.expand_as(rows_BTn))

    def _slots_to_rows(self, slots_BTn: Tensor, history: int) -> Tensor:
        """Weights by slot as weights by row of T: the inverse of `_rows_to_slots`."""
        if self.alignment == "right" or history >= self.slots - 1:
            return slots_BTn
        padded_BTm = functional.pad(slots_BTn, (0, self.slots))
        row_Tn = self._shift_indices(slots_BTn, history, sign=1)
        return padded_BTm.gather(2, row_Tn.expand_as(slots_BTn))

    def _shift_indices(self, values_BTn: Tensor, history: int, sign: int) -> Tensor:
        """Indices (T, n), each plus `sign` times the number of slots without a word at its step."""
        steps, device = values_BTn.shape[1], values_BTn.device
        missing_T = (self.slots - 1 - history - torch.arange(steps, device=device)).clamp(min=0)
        return torch.arange(self.slots, device=device) + sign * missing_T.unsqueeze(1)


class BidirectionalMemoryBlock(MemoryBlock):
    """Equations 1 to 3 over both sides, of n words each; a sentence must be read in one piece."""

    @override
    def attention(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """weights_BTm over the m = 2n slots, those before the word to predict first; empty slots have 0."""
        return self._drop_middle(super().attention(hidden_BTH, earlier_BP, words_BT))

    @property
    @override
    def slot_offsets(self) -> tuple[int, ...]:
        return (*range(1 - self.size, 1), *range(2, self.size + 2))

    @override
    def _pad_words(self, earlier_BP: Tensor, words_BT: Tensor) -> tuple[Tensor, int]:
        """The words with n - 1 places before and n + 1 after them, and the number of words before them."""
        history = earlier_BP.shape[1]
        words_BK = torch.cat([earlier_BP, words_BT], dim=1)
        padding = (self.size - 1 - history, self.size + 1)
        return functional.pad(words_BK, padding, value=BOUNDARY_ID), history

    @override
    def _score_positions(self, hidden_BTH: Tensor, words_BK: Tensor, history: int) -> Tensor:
        batch_size, steps, _ = hidden_BTH.shape
        if self.temporal_keys is None:
            scores_BTm = hidden_BTH.new_zeros(batch_size, steps, 2 * self.size)
        else:
            scores_BTm = hidden_BTH @ self.temporal_keys.t()
        before_Tn = windows.mask_absent_slots(steps, self.size, history, hidden_BTH.device)
        after_BTn = words_BK[:, self.size + 1 :].unfold(1, self.size, 1) == BOUNDARY_ID
        shut_BTm = torch.cat([before_Tn.expand(batch_size, -1, -1), after_BTn], dim=2)
        scores_BTm = scores_BTm.masked_fill(shut_BTm, -torch.inf)
        middle_BT1 = scores_BTm.new_full((batch_size, steps, 1), -torch.inf)
        return torch.cat([scores_BTm[..., : self.size], middle_BT1, scores_BTm[..., self.size :]], dim=2)

    @override
    def _slots_to_rows(self, slots_BTn: Tensor, history: int) -> Tensor:
        return self._drop_middle(slots_BTn)

    def _drop_middle(self, places_BTs: Tensor) -> Tensor:
        return torch.cat([places_BTs[..., : self.size], places_BTs[..., self.size + 1 :]], dim=2)


class RecurrentMemoryConfig(NeuralLanguageModelConfig):
    """A recurrent memory network; the defaults are RM(+tM-g) with one LSTM layer and the paper's sizes."""

    family: Literal["recurrent_memory"] = "recurrent_memory"
    memory_traces: ClassVar[tuple[MemoryTrace, ...]] = ("attention",)
    width: int = Field(128, ge=1, description="Width of embeddings, layers, memories and gates (section 4.2)")
    layers: int = Field(1, ge=1, description="LSTM layers below the memory block (section 3.2)")
    layers_above: int = Field(
        0, ge=0, description="LSTM layers above the memory block: 0 is RM, 1 or more is RMR (section 3.2)"
    )
    memory_size: int = Field(
        15, ge=1, description="n: the most recent words attended to, the current one included (section 3.1)"
    )
    bidirectional: bool = Field(
        False,
        description="Whether the n words after the one to predict are attended to as well (section 6); "
        "sentences are then read whole (protocol sentence)",
    )
    temporal: TemporalTables = Field(
        "keys",
        description='Temporal matrix T: "none" (-tM, equation 1), "keys" (+tM, equation 2: added to M), or '
        '"both" (released code: a second table is added to C)',
    )
    temporal_alignment: TemporalAlignment = Field(
        "right",
        description='Rows of T used while t < n words exist: "right", the current word always reads the last '
        'row (released code), or "left", rows 1 to t as T[1:t] is printed (section 4.2)',
    )
    composition: compositions.CompositionKind = Field(
        "gate",
        description='g(s, h): "sum" s + h, "projected_sum" s + H h (released code), "gate" (equations 4-7), '
        '"gate_biased" (released code: a bias in each of the six maps)',
    )
    dropout: Probability = Field(0.0, description="Probability that a value is dropped (section 6)")
    dropout_placement: DropoutPlacement = "between"
    tie_memory_input: bool = Field(False, description="The input memory table M is the embedding table")
    tie_memory_output: bool = Field(
        False, description="The output memory table C is the input memory table M"
    )
    tie_output: TieOutput = False
    initial_range: float = Field(
        0.05, ge=0, le=100, description="Every parameter starts in U(-range, range) (section 4.2)"
    )
    forget_bias: InputForgetBias = 1.0

    @model_validator(mode="after")
    def _check_alignment(self) -> Self:
        if self.bidirectional and self.temporal_alignment == "left":
            raise ValueError('a bidirectional memory has a row of T for each place; use "right"')
        return self

    @property
    @override
    def reads_ahead(self) -> bool:
        return self.bidirectional

    @property
    def slots(self) -> int:
        """Words attended to at most: n, or 2n on both sides."""
        return 2 * self.memory_size if self.bidirectional else self.memory_size

    @property
    def variant(self) -> Literal["RM", "RMR"]:
        """The paper's name of the arrangement (section 3.2)."""
        return "RMR" if self.layers_above else "RM"

    @override
    def build(self, vocabulary_size: int) -> "RecurrentMemoryLanguageModel":
        return RecurrentMemoryLanguageModel(self, vocabulary_size)

    @override
    def parameter_count(self, vocabulary_size: int) -> int:
        tables = 3 - self.tie_memory_input - self.tie_memory_output
        rows = tables * vocabulary_size + self._temporal_table_count * self.slots
        stacks = LSTMStack.count_parameters(self.width, self.width, self.layers + self.layers_above)
        composed = compositions.count_parameters(self.composition, self.width)
        output = self.output.parameter_count(self.width, vocabulary_size, self.tie_output)
        return rows * self.width + stacks + composed + output

    @override
    def multiply_adds(self, vocabulary_size: int) -> int:
        stacks = LSTMStack.count_multiply_adds(self.width, self.width, self.layers + self.layers_above)
        memory = (2 + self._temporal_table_count) * self.slots * self.width
        composed = compositions.count_multiply_adds(self.composition, self.width)
        return stacks + memory + composed + self.output.multiply_adds(self.width, vocabulary_size)

    @override
    def state_size(self) -> int:
        """The hidden state and the cell of each LSTM layer, and the words before the present one."""
        return 2 * (self.layers + self.layers_above) * self.width + self.memory_size - 1

    @override
    def describe(self) -> dict[str, str | int | float]:
        sides = {"bidirectional": "yes"} if self.bidirectional else {}
        above = ["layers_above"] if self.layers_above else []
        fields = self.select_fields(
            "variant", *sides, "width", "layers", *above, "memory_size", "temporal", "composition", "dropout"
        )
        return fields | sides

    @property
    def _temporal_table_count(self) -> int:
        return {"none": 0, "keys": 1, "both": 2}[self.temporal]


class RecurrentMemoryLanguageModel(EmbeddingLanguageModel):
    """Carried state: hidden and cell of the LSTM layers, (B, layers, H), and the last words, (B, P)."""

    config: RecurrentMemoryConfig

    def __init__(self, config: RecurrentMemoryConfig, vocabulary_size: int) -> None:
        width = config.width
        super().__init__(config, vocabulary_size, width)
        self.below = LSTMStack(width, width, config.layers, config.dropout, config.dropout_placement)
        input_table = self.embedding if config.tie_memory_input else nn.Embedding(vocabulary_size, width)
        output_table = input_table if config.tie_memory_output else nn.Embedding(vocabulary_size, width)
        kind = BidirectionalMemoryBlock if config.bidirectional else MemoryBlock
        self.memory = kind(config, input_table, output_table)
        self.above = (
            LSTMStack(width, width, config.layers_above, config.dropout, config.dropout_placement)
            if config.layers_above
            else None
        )
        self.output = self.build_output(width)
        initialise_uniform(self, config.initial_range)
        for stack in self._stacks().values():
            stack.set_forget_bias(config.forget_bias)

    def _stacks(self) -> dict[str, LSTMStack]:
        return {"below": self.below} if self.above is None else {"below": self.below, "above": self.above}

    @override
    def initial_state(self, batch_size: int) -> RecurrentState:
        state = {"words": make_empty_words(batch_size, self.embedding.weight.device)}
        for name, stack in self._stacks().items():
            state |= {f"{name}_{part}": zeros for part, zeros in stack.initial_state(batch_size).items()}
        return state

    @override
    def encode(self, tokens_BT: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        words_BK = torch.cat([state["words"], tokens_BT], dim=1)
        after: RecurrentState = {"words": keep_recent_words(words_BK, self.config.memory_size - 1)}
        hidden_BTH = self._run_stack("below", self.below, self.embedding(tokens_BT), state, after)
        composed_BTH = self.memory(hidden_BTH, state["words"], tokens_BT)
        if self.above is not None:
            composed_BTH = self._run_stack("above", self.above, composed_BTH, state, after)
        return composed_BTH, after

    @override
    @torch.no_grad()
    def trace_attention(self, tokens_BT: Tensor, state: RecurrentState) -> AttentionTrace:
        hidden_BTH = self._run_stack("below", self.below, self.embedding(tokens_BT), state, {})
        weights_BTn = self.memory.attention(hidden_BTH, state["words"], tokens_BT)
        return AttentionTrace(weights_BTn.unsqueeze(0), self.memory.slot_offsets)

    @staticmethod
    def _run_stack(
        name: str, stack: LSTMStack, inputs_BTH: Tensor, state: RecurrentState, after: RecurrentState
    ) -> Tensor:
        """One stack over all steps; its new state is written to `after`."""
        outputs_BTH: Tensor
        outputs_BTH, own = stack(inputs_BTH, {part: state[f"{name}_{part}"] for part in ("hidden", "cell")})
        after |= {f"{name}_{part}": value for part, value in own.items()}
        return outputs_BTH
