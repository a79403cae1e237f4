"""Retries of operations after transient errors, with growing pauses.

tenacity offers more than the class and the function here, and would be one more dependency.
"""

import math
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Backoff:
    """Pauses between attempts: each is twice as long as the one before, up to a maximum."""

    def __init__(self, first_seconds: float, max_seconds: float) -> None:
        self._first_seconds, self._max_seconds = first_seconds, max_seconds
        self._next_seconds = first_seconds

    def next_pause(self) -> float:
        """Seconds to wait before the next attempt."""
        pause = self._next_seconds
        self._next_seconds = min(2 * pause, self._max_seconds)
        return pause

    def reset(self) -> None:
        """Start again with the first pause, after a success."""
        self._next_seconds = self._first_seconds


def retry(
    action: Callable[[], T],
    is_transient: Callable[[Exception], bool],
    next_pause: Callable[[], float],
    timeout_seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Call `action` until it returns, and return its result.

    After a transient error, wait `next_pause()` seconds and try again. Raises any other error, and the last
    transient error once the next attempt would start later than `timeout_seconds` after the first.
    """
    end = clock() + timeout_seconds
    while True:
        try:
            return action()
        except Exception as error:
            pause = next_pause()
            if not is_transient(error) or clock() + pause > end:
                raise
            sleep(pause)
