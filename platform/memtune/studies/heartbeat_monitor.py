"""Heartbeats of the running trials: which have expired, and which made progress.

The monitor's clock advances by one second at most between two checks. A driver that was stopped for an hour,
or waited for its storage, therefore does not expire its workers.
"""

import time
from collections.abc import Callable

MAX_STEP_SECONDS = 1.0
"""Seconds by which the clock advances at most between two checks."""


class HeartbeatMonitor:
    """The heartbeats of one driver's trials, by number."""

    def __init__(self, timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A trial expires `timeout_seconds` after its last heartbeat."""
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._last_check = clock()
        self._elapsed_seconds = 0.0
        self._last_heartbeats: dict[int, float] = {}
        self._max_tokens: dict[int, int] = {}

    def start(self, number: int) -> None:
        """A worker starts the trial, for the first time or again."""
        self._last_heartbeats[number] = self._elapsed_seconds

    def record_heartbeat(self, number: int, tokens: int) -> bool:
        """Record a report of the worker; return whether the trial has more tokens than ever before."""
        self._last_heartbeats[number] = self._elapsed_seconds
        has_progressed = tokens > self._max_tokens.get(number, 0)
        self._max_tokens[number] = max(tokens, self._max_tokens.get(number, 0))
        return has_progressed

    def remove(self, number: int) -> None:
        """The trial ended, or lost its worker."""
        self._last_heartbeats.pop(number, None)

    def find_expired_trials(self) -> list[int]:
        """Advance the clock and return the expired trials. Call it more often than once a second."""
        now = self._clock()
        self._elapsed_seconds += min(now - self._last_check, MAX_STEP_SECONDS)
        self._last_check = now
        return [
            number
            for number, last in self._last_heartbeats.items()
            if self._elapsed_seconds - last >= self.timeout_seconds
        ]
