"""The time a study has been run for, over all its drivers, against its budget."""

import time

from memtune.execution.director import Trial
from memtune.search import Proposals

__all__ = ["Clock"]

STORED_EVERY = 5.0
"""Seconds between two notes of the time; a driver that is killed gives away no more than the time since."""


class Clock:
    """Runs while a driver does; what earlier drivers of the study spent is in its proposals."""

    def __init__(self, proposals: Proposals, budget: float | None) -> None:
        """`budget` in seconds of wall-clock time; None is no bound."""
        self._proposals, self._budget = proposals, budget
        self._before, self._began = proposals.seconds_spent(), time.monotonic()
        self._stored = self._began

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return self._before + time.monotonic() - self._began

    @property
    def left(self) -> float | None:
        """Seconds until the budget is spent; None without one."""
        return None if self._budget is None else max(0.0, self._budget - self.spent)

    def tick(self, trial: Trial | None = None) -> None:
        """Store the time; with a trial, which watchers are told of, only now and then."""
        if trial is None or time.monotonic() - self._stored >= STORED_EVERY:
            self._stored = time.monotonic()
            self._proposals.spend(self.spent)
