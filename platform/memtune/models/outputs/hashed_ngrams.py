"""Direct connections from the last words to the output layer: weights of n-grams in a hashed table.

Mikolov, Deoras, Povey, Burget and Černocký (2011), "Strategies for Training Large Scale Neural Network
Language Models": a maximum-entropy model inside a network. One table holds the weights of all n-grams at the
index of a hash; n-grams with the same index share a weight. The hash depends on a context (the last 0 to
n - 1 words) and on a softmax: group 0 is the softmax over all words or over the classes, group k + 1 the
softmax over the words of class k. The weights of the words or classes of a softmax follow each other from
that index, so a row reads one slice of the table for each length of context.

Shapes: B batch, T time, P remembered words (at most n - 2), K = P + T words, O = n contexts, S size of the
table, R rows, L length of a slice, E entries of slices of different lengths, one after the other.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

BOUNDARY_ID = 0
"""The id of `<eos>`, which also stands before the first word of a text and pads."""
HASH_MULTIPLIER = 6364136223846793005
"""The multiplier of the linear congruential generator of Knuth's MMIX; products wrap around at 64 bits."""


class Slices(NamedTuple):
    """A table of weights, and the hashes of the contexts whose slices are read."""

    table_S: Tensor
    contexts_RO: Tensor

    def find_starts(self, group: int | Tensor, length: int | Tensor) -> Tensor:
        """The first index of each context's slice for a softmax; `group` and `length` may differ by row."""
        hashes = _mix_hash(self.contexts_RO, group)
        return torch.remainder(hashes ^ (hashes >> 32), len(self.table_S) - length + 1)


def hash_contexts(words_BK: Tensor, steps: int, order: int) -> Tensor:
    """contexts_BTO: at each of the last `steps` words, the hashes of its last 0, 1, ... `order` - 1 words."""
    missing = max(0, order - 2 + steps - words_BK.shape[1])
    words_BK = functional.pad(words_BK, (missing, 0), value=BOUNDARY_ID)
    last = words_BK.shape[1] - steps
    hashes_BT = torch.zeros_like(words_BK[:, last:])
    contexts = [hashes_BT]
    for back in range(order - 1):
        hashes_BT = _mix_hash(hashes_BT, words_BK[:, last - back : last - back + steps])
        contexts.append(hashes_BT)
    return torch.stack(contexts, dim=2)


def _mix_hash(hashes: Tensor, value: int | Tensor) -> Tensor:
    """A hash that depends on one more value."""
    return (hashes + value + 1) * HASH_MULTIPLIER


@torch.no_grad()
def add_slices(values_RL: Tensor, table_S: Tensor, starts_RO: Tensor) -> None:
    """Add to each row the slices that begin at its starts."""
    slices = table_S.unfold(0, values_RL.shape[1], 1)
    for starts_R in starts_RO.unbind(1):
        values_RL += slices[starts_R]


@torch.no_grad()
def add_to_slices(table_S: Tensor, starts_RO: Tensor, values_RL: Tensor) -> None:
    """Add each row to the slices of the table that begin at its starts: the inverse of `add_slices`."""
    offsets_L = torch.arange(values_RL.shape[1], device=table_S.device)
    values_E = values_RL.to(table_S.dtype).flatten()
    for starts_R in starts_RO.unbind(1):
        table_S.index_add_(0, (starts_R.unsqueeze(1) + offsets_L).flatten(), values_E)


def locate_slice_entries(starts_RO: Tensor, lengths_R: Tensor) -> Tensor:
    """entries_OE: the indices in the table of all entries of slices with these lengths."""
    ends_R = lengths_R.cumsum(0)
    total = int(ends_R[-1])
    offsets_E = torch.arange(total, device=starts_RO.device)
    offsets_E -= (ends_R - lengths_R).repeat_interleave(lengths_R, output_size=total)
    return starts_RO.t().repeat_interleave(lengths_R, dim=1, output_size=total) + offsets_E
