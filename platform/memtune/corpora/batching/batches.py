"""Batches of text and of trees, and the plans that make them.

A plan is a function of (split, seed, epoch) and makes its i-th batch directly, so a position in the data is
the pair (epoch, i).

Shapes: B batch rows, T time; N nodes, the boundary of sentences first; W = N - 1 words.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BOUNDARY = 0
"""The id of `<eos>`: it ends every sentence, precedes the first word and is the parent of each root."""
Positions = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class DeviceBatch:
    """Tensors that move together."""

    def to(self, device: torch.device) -> Self:
        """The same batch on a device; copies to a GPU are asynchronous."""
        if device.type == "cpu":
            return self

        def send(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(send, value))
            return value.pin_memory().to(device, non_blocking=True) if isinstance(value, Tensor) else value

        return replace(self, **{name: send(value) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Batch(DeviceBatch):
    """Input tokens, target tokens, and the mask of targets that count."""

    inputs_BT: Tensor
    """int64: the model reads column t before it predicts target t."""
    targets_BT: Tensor
    """int64."""
    mask_BT: Tensor | None
    """bool, True where a target counts; None when all do."""
    carries_state: bool
    """Whether the model continues from its state after the previous batch, or starts from a zero state."""
    token_count: int
    """Predicted tokens that count."""
    learning_rate_scale: float = 1.0
    """Factor of the learning rate for this batch."""

    @property
    def rows(self) -> int:
        """B: number of sentences or stream pieces read in parallel."""
        return len(self.inputs_BT)

    def get_mask(self) -> Tensor:
        """`mask_BT`, also where all targets count."""
        return torch.ones_like(self.targets_BT, dtype=torch.bool) if self.mask_BT is None else self.mask_BT


@dataclass(frozen=True)
class TreeBatch(DeviceBatch):
    """Trees of words in order of levels; within a level, words with children come first."""

    words_N: Tensor
    """int64 ids; the first is the boundary; each other is predicted from the path down to it."""
    parents_N: Tensor
    """int64: the parent of each node; the boundary is the parent of itself and of every root."""
    labels_N: Tensor
    """int64: the relation of each word to its head; -1 for the boundary, roots and unknown relations."""
    sentences_W: Tensor
    """int64: the sentence of each word, counted within the batch."""
    mask_W: Tensor | None
    """bool, True where a word counts; None when all do."""
    bounds: tuple[int, ...]
    """The first node of each level, and N; level 0 is the boundary, level 1 are the roots."""
    branching_counts: tuple[int, ...]
    """Nodes of each level that have children."""
    rows: int
    """Sentences."""
    token_count: int
    """Predicted words that count."""
    learning_rate_scale: float = 1.0


BatchT_co = TypeVar("BatchT_co", covariant=True)


@dataclass(frozen=True)
class TaskPlan(Generic[BatchT_co]):
    """The batches of one epoch of training, or of one evaluation: items, such as sentences, in groups."""

    bounds: Positions
    """Where each batch starts among the items, and the number of items."""
    token_count: int
    """Number of predicted tokens of all batches."""
    make_batch: Callable[[Positions], BatchT_co]
    """Makes the batch of some items."""
    items: Positions | None = None
    """The items in order; None for the numbers from 0."""
    order: Positions | None = None
    """The order of the batches; None for that of the items."""

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.bounds) - 1

    def get_items(self, index: int) -> Positions:
        """The items of the batch at an index from 0."""
        place = index if self.order is None else self.order[index]
        start, stop = self.bounds[place : place + 2]
        return np.arange(start, stop) if self.items is None else self.items[start:stop]

    def batch(self, index: int) -> BatchT_co:
        """The batch at an index from 0; it does not read the earlier batches."""
        return self.make_batch(self.get_items(index))


Plan = TaskPlan[Batch]


def cut_by_length(lengths: Positions, most_tokens: int) -> Positions:
    """Bounds of batches of items of ascending lengths.

    A batch has one item, or at most so many tokens, padding to its longest item included.
    """
    bounds = [0]
    while bounds[-1] < len(lengths):
        tokens = lengths[bounds[-1] :] * np.arange(1, len(lengths) - bounds[-1] + 1)
        bounds.append(bounds[-1] + max(1, int(np.searchsorted(tokens, most_tokens, side="right"))))
    return np.array(bounds)


def shift_targets(targets_BT: Positions) -> Positions:
    """The input for each target of a sentence: the boundary, then the preceding targets."""
    inputs_BT = np.empty_like(targets_BT)
    inputs_BT[:, 0] = BOUNDARY
    inputs_BT[:, 1:] = targets_BT[:, :-1]
    return inputs_BT
