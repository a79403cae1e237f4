"""Direct connections from the last words to the output layer: weights of n-grams, found by hashing.

Mikolov, Deoras, Povey, Burget and Černocký (2011), "Strategies for Training Large Scale Neural Network
Language Models": a maximum-entropy model inside a network. The weight of an n-gram stands in one
table, wherever a hash says, and n-grams that meet there share it. Hashed are a context (the last 0 to n - 1
words) and a softmax (that over all words or over the classes: group 0, or that over the words of class k:
group k + 1); the words or classes of the softmax follow one another from there, so a row reads one slice of
the table for each length of context.

Shapes: B batch, T time, P remembered words (at most n - 2), K = P + T words, O = n contexts, S size of the
table, R rows, L length of a slice, E entries of slices of different lengths, one after the other.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Slices", "add_slices", "add_to_slices", "context_hashes", "slice_entries"]

BEFORE_TEXT = 0
"""The word that stands before a text: the boundary of sentences."""
MULTIPLIER = 6364136223846793005
"""Of the linear congruential generator of Knuth's MMIX; products wrap around at 64 bits."""


class Slices(NamedTuple):
    """A table, and the hashes of the contexts whose slices of it are read."""

    table_S: Tensor
    contexts_RO: Tensor

    def starts(self, group: int | Tensor, length: int | Tensor) -> Tensor:
        """Where the slice of each context for a softmax begins; groups and lengths may go along with rows."""
        hashes = _mixed(self.contexts_RO, group)
        return torch.remainder(hashes ^ (hashes >> 32), len(self.table_S) - length + 1)


def context_hashes(words_BK: Tensor, steps: int, order: int) -> Tensor:
    """contexts_BTO of the last `steps` words: of none of them, of the last one, the last two, and so on."""
    missing = max(0, order - 2 + steps - words_BK.shape[1])
    words_BK = functional.pad(words_BK, (missing, 0), value=BEFORE_TEXT)
    last = words_BK.shape[1] - steps
    hashes_BT = torch.zeros_like(words_BK[:, last:])
    contexts = [hashes_BT]
    for back in range(order - 1):
        hashes_BT = _mixed(hashes_BT, words_BK[:, last - back : last - back + steps])
        contexts.append(hashes_BT)
    return torch.stack(contexts, dim=2)


def _mixed(hashes: Tensor, value: int | Tensor) -> Tensor:
    """A hash that depends on one more value."""
    return (hashes + value + 1) * MULTIPLIER


@torch.no_grad()
def add_slices(values_RL: Tensor, table_S: Tensor, starts_RO: Tensor) -> None:
    """Add to each row the slices that begin at its starts."""
    slices = table_S.unfold(0, values_RL.shape[1], 1)
    for starts_R in starts_RO.unbind(1):
        values_RL += slices[starts_R]


@torch.no_grad()
def add_to_slices(table_S: Tensor, starts_RO: Tensor, values_RL: Tensor) -> None:
    """The other way round: add each row to all slices of the table that begin at its starts."""
    offsets_L = torch.arange(values_RL.shape[1], device=table_S.device)
    values_E = values_RL.to(table_S.dtype).flatten()
    for starts_R in starts_RO.unbind(1):
        table_S.index_add_(0, (starts_R.unsqueeze(1) + offsets_L).flatten(), values_E)


def slice_entries(starts_RO: Tensor, lengths_R: Tensor) -> Tensor:
    """entries_OE: where in the table the entries of slices of these lengths stand."""
    ends_R = lengths_R.cumsum(0)
    total = int(ends_R[-1])
    offsets_E = torch.arange(total, device=starts_RO.device)
    offsets_E -= (ends_R - lengths_R).repeat_interleave(lengths_R, output_size=total)
    return starts_RO.t().repeat_interleave(lengths_R, dim=1, output_size=total) + offsets_E
