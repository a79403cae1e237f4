"""A limit on the time of one input: processor time and total time.

A blocked read takes no processor time, and on a busy machine a quick input may wait for a core. Objects of
earlier tests are not collected meanwhile, which takes seconds in a process that has run thousands of tests.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from memtune.gc_pause import pause_gc

__all__ = ["MAX_CPU_SECONDS", "MAX_SECONDS", "limit_time"]

MAX_CPU_SECONDS = 5
MAX_SECONDS = 60


@contextmanager
def limit_time(cpu_seconds: float = MAX_CPU_SECONDS, seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Raise AssertionError in a block that takes more processor time or more time than this.

    The error is not an OSError such as TimeoutError, because readers would report it as a fault of the file.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"more than {cpu_seconds} s of processor time or {seconds} s of waiting")

    limits = {signal.ITIMER_VIRTUAL: cpu_seconds, signal.ITIMER_REAL: seconds}
    before = {number: signal.signal(number, stop) for number in (signal.SIGVTALRM, signal.SIGALRM)}
    for timer, limit in limits.items():
        signal.setitimer(timer, limit)
    try:
        with pause_gc():
            yield
    finally:
        for timer in limits:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
