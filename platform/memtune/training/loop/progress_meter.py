"""Progress of a trial between two reports, for displays."""

import time
from collections.abc import Callable

from memtune.training.loop.report_interval import ReportInterval
from memtune.training.trial_report import Progress

PROGRESS_SECONDS = 0.25
"""Shortest time between two updates."""


class ProgressMeter:
    """Passes the progress of a trial to a callback, four times a second at most."""

    def __init__(self, callback: Callable[[Progress], None] | None, budget_tokens: int) -> None:
        self._callback = callback
        self._budget_tokens = budget_tokens
        self._last_update = time.perf_counter()

    def update(self, tokens: int, interval: ReportInterval) -> None:
        """Report the progress after `tokens` predicted tokens if an update is due."""
        now = time.perf_counter()
        if self._callback is None or now - self._last_update <= PROGRESS_SECONDS:
            return
        speed = interval.tokens_per_second()
        seconds_left = max(0, self._budget_tokens - tokens) / speed
        self._callback(Progress(tokens, speed, interval.mean_loss(), seconds_left))
        self._last_update = now
