"""The wall-clock time that all drivers of a study have run it."""

import time

from memtune.search import Proposals
from memtune.studies.trial import Trial

STORE_INTERVAL_SECONDS = 5.0
"""Seconds between two writes of the time; a killed driver loses the time since the last one."""


class StudyClock:
    """The clock of one driver, started with the time that earlier drivers have spent."""

    def __init__(self, proposals: Proposals) -> None:
        self._proposals = proposals
        self._earlier_seconds, self._start = proposals.read_seconds_spent(), time.monotonic()
        self._last_stored = self._start

    @property
    def spent_seconds(self) -> float:
        """Seconds that all drivers have spent."""
        return self._earlier_seconds + time.monotonic() - self._start

    def tick(self, trial: Trial | None = None) -> None:
        """Store the time. With a trial, as a director's watcher, store it every 5 s at most."""
        if trial is None or time.monotonic() - self._last_stored >= STORE_INTERVAL_SECONDS:
            self._last_stored = time.monotonic()
            self._proposals.store_seconds_spent(self.spent_seconds)
