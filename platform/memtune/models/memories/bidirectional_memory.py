"""The memory block that also attends to the words after the word to predict.

Tran, Bisazza and Monz (2016), section 6: the slots are the n words up to the current one and the n words
after the word to predict. The word to predict has no slot. T has 2n rows. A window of 2n + 1 places slides
along the text, and its middle place, the word to predict, is always masked.

Shapes: B batch, T time, n slots on each side, s = 2n + 1 places, P earlier words (at most n - 1), H width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.memories.composition import CompositionKind
from memtune.models.memories.memory_block import MemoryBlock, TemporalTables
from memtune.models.memories.window_attention import mask_absent_slots

__all__ = ["BidirectionalMemoryBlock"]

BOUNDARY_ID = 0
"""The id of padding and of the end of a sentence; slots with it after the current word are masked."""


class BidirectionalMemoryBlock(MemoryBlock):
    """Equations 1 to 3 over both sides; a sentence must be read in one piece."""

    def __init__(
        self,
        input_table: nn.Embedding,
        output_table: nn.Embedding,
        size: int,
        temporal: TemporalTables,
        kind: CompositionKind,
    ) -> None:
        """`size` is n; the other arguments are those of `MemoryBlock`."""
        super().__init__(input_table, output_table, 2 * size, temporal, "right", kind)
        self.size = size

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
        before_Tn = mask_absent_slots(steps, self.size, history, hidden_BTH.device)
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
