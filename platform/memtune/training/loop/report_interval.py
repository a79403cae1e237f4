"""Sums over the steps between two reports; a checkpoint can hold them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from typing import Self

import torch
from torch import Tensor

from memtune.values import Value


class IntervalRecord(Value):
    """The part of an interval that a checkpoint's record holds; its sums are tensors in another file."""

    milestone: int
    """Predicted tokens of the trial at which its next report is due."""
    tokens: int
    """Predicted tokens since the last report."""
    steps: int
    """Steps since the last report."""
    learning_rate: float
    """Learning rate of the last step."""
    seconds: float
    """Seconds of training since the last report, without evaluation."""


class ReportInterval:
    """Running sums since the last report; sums of tensors stay on their device until they are read."""

    def __init__(self, device: torch.device, milestone: int) -> None:
        """`milestone`: predicted tokens of the trial at which the next report is due."""
        self.milestone = milestone
        self.tokens = 0
        self.steps = 0
        self.learning_rate = 0.0
        self._nats = torch.zeros((), dtype=torch.float64, device=device)
        self._norms = torch.zeros((), dtype=torch.float64, device=device)
        self._seconds = 0.0
        self._started: float | None = None

    @contextmanager
    def measure_time(self) -> Iterator[None]:
        """Context whose time counts as training."""
        self._started = time.perf_counter()
        yield
        self._seconds, self._started = self.seconds, None

    @property
    def seconds(self) -> float:
        """Seconds of training since the last report, up to now."""
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._seconds + running

    def add_batch(self, nats: Tensor, tokens: int) -> None:
        """Add the summed nats of a batch and its tokens."""
        self._nats += nats.detach()
        self.tokens += tokens

    def add_step(self, norm: Tensor, learning_rate: float) -> None:
        """Add the norm of a step's gradient and its learning rate."""
        self._norms += norm
        self.steps += 1
        self.learning_rate = learning_rate

    def find_problem(self) -> str | None:
        """The problem if a sum is not finite, else None; on a GPU the host waits for the sums."""
        if not isfinite(self._nats.item()):
            return "the training loss is not finite"
        return None if isfinite(self._norms.item()) else "the gradient is not finite"

    def mean_loss(self) -> float:
        """Nats per token."""
        return self._nats.item() / self.tokens

    def mean_gradient_norm(self) -> float:
        """Mean over the steps."""
        return self._norms.item() / self.steps

    def tokens_per_second(self) -> float:
        """Tokens per second of training, up to now."""
        return self.tokens / self.seconds

    def to_record(self) -> IntervalRecord:
        """Everything except the sums."""
        return IntervalRecord(
            milestone=self.milestone,
            tokens=self.tokens,
            steps=self.steps,
            learning_rate=self.learning_rate,
            seconds=self.seconds,
        )

    def sums(self) -> dict[str, Tensor]:
        """The sums by name, scalars of double precision."""
        return {"nats": self._nats, "norms": self._norms}

    @classmethod
    def from_record(cls, record: IntervalRecord, sums: dict[str, Tensor], device: torch.device) -> Self:
        """The interval that `to_record` and `sums` describe."""
        interval = cls(device, record.milestone)
        interval.tokens, interval.steps = record.tokens, record.steps
        interval.learning_rate, interval._seconds = record.learning_rate, record.seconds
        interval._nats, interval._norms = sums["nats"].to(device), sums["norms"].to(device)
        return interval
