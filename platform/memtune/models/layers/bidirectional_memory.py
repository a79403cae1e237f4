"""The memory block that also sees the words after the one to predict.

Tran, Bisazza and Monz (2016), section 6: the n words up to the current one and the n words after the word to
predict, which is itself in no slot; T has 2n rows. A window of 2n + 1 places slides along the text, and the
place in its middle, that of the word to predict, is always shut.

Shapes: B batch, T time, n slots on each side, s = 2n + 1 places, P earlier words (at most n - 1), H width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from memtune.models.layers.composition import CompositionKind
from memtune.models.layers.memory_block import MemoryBlock, TemporalTables
from memtune.models.layers.window_attention import absent_slots

__all__ = ["BidirectionalMemoryBlock"]

BOUNDARY = 0
"""The id that no word after the current one has: it fills up rows, and ends a sentence."""


class BidirectionalMemoryBlock(MemoryBlock):
    """Equations 1 to 3 over both sides; a sentence is read in one piece."""

    def __init__(
        self,
        input_table: nn.Embedding,
        output_table: nn.Embedding,
        size: int,
        temporal: TemporalTables,
        kind: CompositionKind,
    ) -> None:
        """`size` is n, the rest as in `MemoryBlock`."""
        super().__init__(input_table, output_table, 2 * size, temporal, "right", kind)
        self.size = size

    @override
    def attention(self, hidden_BTH: Tensor, earlier_BP: Tensor, words_BT: Tensor) -> Tensor:
        """weights_BTm over the m = 2n slots, those before the word to predict first; 0 where none is."""
        return self._without_middle(super().attention(hidden_BTH, earlier_BP, words_BT))

    @override
    def _remembered(self, earlier_BP: Tensor, words_BT: Tensor) -> tuple[Tensor, int]:
        """The words with n - 1 places before and n + 1 after them, and how many of the former are words."""
        history = earlier_BP.shape[1]
        words_BK = torch.cat([earlier_BP, words_BT], dim=1)
        padding = (self.size - 1 - history, self.size + 1)
        return functional.pad(words_BK, padding, value=BOUNDARY), history

    @override
    def _position(self, hidden_BTH: Tensor, words_BK: Tensor, history: int) -> Tensor:
        batch_size, steps, _ = hidden_BTH.shape
        if self.temporal_keys is None:
            scores_BTm = hidden_BTH.new_zeros(batch_size, steps, 2 * self.size)
        else:
            scores_BTm = hidden_BTH @ self.temporal_keys.t()
        before_Tn = absent_slots(steps, self.size, history, hidden_BTH.device)
        after_BTn = words_BK[:, self.size + 1 :].unfold(1, self.size, 1) == BOUNDARY
        shut_BTm = torch.cat([before_Tn.expand(batch_size, -1, -1), after_BTn], dim=2)
        scores_BTm = scores_BTm.masked_fill(shut_BTm, -torch.inf)
        middle_BT1 = scores_BTm.new_full((batch_size, steps, 1), -torch.inf)
        return torch.cat([scores_BTm[..., : self.size], middle_BT1, scores_BTm[..., self.size :]], dim=2)

    @override
    def _by_row(self, slots_BTn: Tensor, history: int) -> Tensor:
        return self._without_middle(slots_BTn)

    def _without_middle(self, places_BTs: Tensor) -> Tensor:
        return torch.cat([places_BTs[..., : self.size], places_BTs[..., self.size + 1 :]], dim=2)
