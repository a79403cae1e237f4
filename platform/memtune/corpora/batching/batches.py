"""Batches of text and the plans that make them.

A plan is a function of (split, seed, epoch) and makes its i-th batch directly, so a position in the data is
the pair (epoch, i).

Shapes: B batch rows, T time.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memtune.corpora.batching.treebank import BOUNDARY, send_to_device

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
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

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; copies to a GPU are asynchronous."""
        if device.type == "cpu":
            return self
        inputs_BT, targets_BT = (
            send_to_device(tensor, device) for tensor in (self.inputs_BT, self.targets_BT)
        )
        mask_BT = None if self.mask_BT is None else send_to_device(self.mask_BT, device)
        return replace(self, inputs_BT=inputs_BT, targets_BT=targets_BT, mask_BT=mask_BT)


class Plan(ABC):
    """The batches of one epoch of training, or of one evaluation, in their order."""

    @property
    @abstractmethod
    def token_count(self) -> int:
        """Number of predicted tokens of the whole plan."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of batches."""

    @abstractmethod
    def batch(self, index: int) -> Batch:
        """The batch at an index from 0, made without making the previous ones."""


def shift_targets(targets_BT: Positions) -> Positions:
    """The input for each target of a sentence: the boundary, then the preceding targets."""
    inputs_BT = np.empty_like(targets_BT)
    inputs_BT[:, 0] = BOUNDARY
    inputs_BT[:, 1:] = targets_BT[:, :-1]
    return inputs_BT
