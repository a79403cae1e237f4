"""The memory block: a hidden state attends over the n most recent words, embedded in tables of its own.

Tran, Bisazza and Monz (2016), "Recurrent Memory Networks for Language Modeling", section 3.1.

Shapes: B batch, T time, n slots (the most recent is the last), P earlier words (at most n - 1), H width.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from memtune.models.layers.composition import CompositionKind, composition
from memtune.models.layers.window_attention import (
    absent_slots,
    window_context,
    window_slots,
    window_weights,
)

__all__ = ["MemoryBlock", "TemporalAlignment", "TemporalTables"]

TemporalTables = Literal["none", "keys", "both"]
"""Position added to nothing, to the input memories M (equation 2), or also to the output memories C."""
TemporalAlignment = Literal["right", "left"]
"""The row of T that the current word reads while fewer than n words exist: always the last, or the t-th."""


class MemoryBlock(nn.Module):
    """Equations 1 to 3 and a composition, for all time steps at once."""

    def __init__(
        self,
        input_table: nn.Embedding,
        output_table: nn.Embedding,
        slots: int,
        temporal: TemporalTables,
        alignment: TemporalAlignment,
        kind: CompositionKind,
    ) -> None:
        """`input_table` is M and `output_table` is C; one table in both places is looked up once."""
        super().__init__()
        width = input_table.embedding_dim
        self.slots = slots
        self.alignment = alignment
        self.input_table = input_table
        self.output_table = output_table
        self.temporal_keys = nn.Parameter(torch.empty(slots, width)) if temporal != "none" else None
        self.temporal_values = nn.Parameter(torch.empty(slots, width)) if temporal == "both" else None
        self.composition = composition(kind, width)

    def forward(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """h^m (B, T, H) of the hidden states after each of `words`, read after the `earlier` ones."""
        words_BK, history = self._remembered(earlier_BP, words_BT)
        keys_BKH = self.input_table(words_BK)
        shared = self.output_table is self.input_table
        values_BKH = keys_BKH if shared else self.output_table(words_BK)
        steps = words_BT.shape[1]
        weights_XLJ = window_weights(hidden_BTH, keys_BKH, self._position(hidden_BTH, words_BK, history))
        context_BTH = window_context(weights_XLJ, values_BKH, steps)
        if self.temporal_values is not None:
            slots_BTn = window_slots(weights_XLJ, len(words_BT), steps)
            context_BTH = context_BTH + self._by_row(slots_BTn, history) @ self.temporal_values
        composed_BTH: Tensor = self.composition(context_BTH, hidden_BTH)
        return composed_BTH

    def attention(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """p_t of equations 1 and 2 as weights_BTn, 0 where there is no word."""
        words_BK, history = self._remembered(earlier_BP, words_BT)
        position_BTn = self._position(hidden_BTH, words_BK, history)
        weights_XLJ = window_weights(hidden_BTH, self.input_table(words_BK), position_BTn)
        return window_slots(weights_XLJ, *words_BT.shape)

    def _remembered(self, earlier_BP: Tensor, words_BT: Tensor) -> tuple[Tensor, int]:
        """The words and exactly n - 1 before them, filled up on the left, and how many of those exist."""
        history = earlier_BP.shape[1]
        words_BK = torch.cat([earlier_BP, words_BT], dim=1)
        return functional.pad(words_BK, (self.slots - 1 - history, 0)), history

    def _position(self, hidden_BTH: Tensor, words_BK: Tensor, history: int) -> Tensor:
        """What the place of each slot adds to its score, (B, T, n): -inf where there is no word."""
        batch_size, steps, _ = hidden_BTH.shape
        if self.temporal_keys is None:
            position_BTn = hidden_BTH.new_zeros(batch_size, steps, self.slots)
        else:
            position_BTn = self._by_slot(hidden_BTH @ self.temporal_keys.t(), history)
        if history < self.slots - 1:
            absent_Tn = absent_slots(steps, self.slots, history, hidden_BTH.device)
            position_BTn = position_BTn.masked_fill(absent_Tn, -torch.inf)
        return position_BTn

    def _by_slot(self, rows_BTn: Tensor, history: int) -> Tensor:
        """Scores by row of T as scores by slot: early in a text, left alignment starts at the first row."""
        if self.alignment == "right" or history >= self.slots - 1:
            return rows_BTn
        padded_BTm = functional.pad(rows_BTn, (self.slots, 0))
        slot_Tn = self._missing(rows_BTn, history, sign=-1) + self.slots
        return padded_BTm.gather(2, slot_Tn.expand_as(rows_BTn))

    def _by_row(self, slots_BTn: Tensor, history: int) -> Tensor:
        """Weights by slot as weights by row of T: the inverse of `_by_slot`."""
        if self.alignment == "right" or history >= self.slots - 1:
            return slots_BTn
        padded_BTm = functional.pad(slots_BTn, (0, self.slots))
        row_Tn = self._missing(slots_BTn, history, sign=1)
        return padded_BTm.gather(2, row_Tn.expand_as(slots_BTn))

    def _missing(self, values_BTn: Tensor, history: int, sign: int) -> Tensor:
        """Index (T, n) moved by the number of slots without a word at each step."""
        steps, device = values_BTn.shape[1], values_BTn.device
        missing_T = (self.slots - 1 - history - torch.arange(steps, device=device)).clamp(min=0)
        return torch.arange(self.slots, device=device) + sign * missing_T.unsqueeze(1)
