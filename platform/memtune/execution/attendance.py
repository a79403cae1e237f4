"""Who of the running trials has been heard of, who has been silent for too long, and who gets further.

Time passes only while somebody listens: a driver that was itself stopped for an hour, or waited for its
storage, does not take its workers for dead.
"""

import time
from collections.abc import Callable

__all__ = ["Attendance"]

LONGEST_STEP = 1.0
"""Seconds between two looks that count at most."""


class Attendance:
    """The running trials of one driver, by their numbers."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`limit`: seconds of silence, listened to, after which a trial's worker is given up."""
        self.limit = limit
        self._clock = clock
        self._looked = clock()
        self._listened = 0.0
        self._heard: dict[int, float] = {}
        self._furthest: dict[int, int] = {}

    def began(self, number: int) -> None:
        """A worker took the trial up, for the first time or again."""
        self._heard[number] = self._listened

    def heard(self, number: int, tokens: int) -> bool:
        """The trial's worker reported; whether the trial is further than it ever was."""
        self._heard[number] = self._listened
        further = tokens > self._furthest.get(number, 0)
        self._furthest[number] = max(tokens, self._furthest.get(number, 0))
        return further

    def left(self, number: int) -> None:
        """The trial ended, or its worker is no more."""
        self._heard.pop(number, None)

    def silent(self) -> list[int]:
        """Look up; the trials whose workers have said nothing for the limit. To be called often."""
        now = self._clock()
        self._listened += min(now - self._looked, LONGEST_STEP)
        self._looked = now
        return [number for number, heard in self._heard.items() if self._listened - heard >= self.limit]
