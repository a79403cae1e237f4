"""The memory block: a hidden state attends over the n most recent words, embedded in separate tables.

Tran, Bisazza and Monz (2016), "Recurrent Memory Networks for Language Modeling", section 3.1.

Shapes: B batch, T time, n slots (the most recent is the last), P earlier words (at most n - 1), H width.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from memtune.models.memories.composition import CompositionKind, build_composition
from memtune.models.memories.window_attention import (
    arrange_window_slots,
    compute_window_weights,
    mask_absent_slots,
    sum_window_values,
)

TemporalTables = Literal["none", "keys", "both"]
"""What temporal tables are added to: nothing, the input memories M (equation 2), or both M and C."""
TemporalAlignment = Literal["right", "left"]
"""The row of T that the current word reads while fewer than n words exist: the last ("right") or the t-th."""


class MemoryBlock(nn.Module):
    """Equations 1 to 3 and a composition, for all time steps together."""

    def __init__(
        self,
        input_table: nn.Embedding,
        output_table: nn.Embedding,
        slots: int,
        temporal: TemporalTables,
        alignment: TemporalAlignment,
        kind: CompositionKind,
    ) -> None:
        """`input_table` is M and `output_table` is C; a table that is both is looked up once."""
        super().__init__()
        width = input_table.embedding_dim
        self.slots = slots
        self.alignment = alignment
        self.input_table = input_table
        self.output_table = output_table
        self.temporal_keys = nn.Parameter(torch.empty(slots, width)) if temporal != "none" else None
        self.temporal_values = nn.Parameter(torch.empty(slots, width)) if temporal == "both" else None
        self.composition = build_composition(kind, width)

    def forward(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """h^m (B, T, H) for the hidden state after each of `words`, which follow the `earlier` words."""
        words_BK, history = self._pad_words(earlier_BP, words_BT)
        keys_BKH = self.input_table(words_BK)
        shared = self.output_table is self.input_table
        values_BKH = keys_BKH if shared else self.output_table(words_BK)
        steps = words_BT.shape[1]
        weights_XLJ = compute_window_weights(
            hidden_BTH, keys_BKH, self._score_positions(hidden_BTH, words_BK, history)
        )
        context_BTH = sum_window_values(weights_XLJ, values_BKH, steps)
        if self.temporal_values is not None:
            slots_BTn = arrange_window_slots(weights_XLJ, len(words_BT), steps)
            context_BTH = context_BTH + self._slots_to_rows(slots_BTn, history) @ self.temporal_values
        composed_BTH: Tensor = self.composition(context_BTH, hidden_BTH)
        return composed_BTH

    def attention(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """p_t of equations 1 and 2 as weights_BTn; slots without a word have 0."""
        words_BK, history = self._pad_words(earlier_BP, words_BT)
        position_BTn = self._score_positions(hidden_BTH, words_BK, history)
        weights_XLJ = compute_window_weights(hidden_BTH, self.input_table(words_BK), position_BTn)
        return arrange_window_slots(weights_XLJ, *words_BT.shape)

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
            absent_Tn = mask_absent_slots(steps, self.slots, history, hidden_BTH.device)
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
