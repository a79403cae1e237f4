"""The request to end a run of trials: from a signal, or because a budget is spent."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from memtune.stop_signals import STOP_SIGNALS, is_ignored, release_closed_terminal

STOP_SECONDS = 5.0
"""Seconds in which the workers of a run store a checkpoint and end; those that take longer are killed."""
STOPPING_MESSAGE = "stopping: trials store a checkpoint; press Ctrl-C again to end at once"


class StopRequest:
    """Whether the workers of a run should store a checkpoint and end; their trials stay open."""

    def __init__(self, is_budget_spent: Callable[[], bool] = lambda: False) -> None:
        """`is_budget_spent` is asked after every training step of a trial in the driver's process."""
        self._is_budget_spent = is_budget_spent
        self._signalled = threading.Event()

    @property
    def is_signalled(self) -> bool:
        """Whether a signal set the request."""
        return self._signalled.is_set()

    @property
    def is_set(self) -> bool:
        """Whether the run should end."""
        return self._signalled.is_set() or self._is_budget_spent()

    @contextmanager
    def catch_signals(self, notify: Callable[[str], object]) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and SIGHUP set the request in the block; a second one raises KeyboardInterrupt.

        SIGHUP means that the terminal was closed: what is printed from then on is discarded, and another
        SIGHUP is ignored, also after the block. Does nothing outside the main thread, where Python installs
        no signal handlers. A signal that the process ignores stays ignored, as under `nohup`; Ctrl-C is
        always caught.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle_signal(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGHUP:
                release_closed_terminal()
            elif self._signalled.is_set():
                raise KeyboardInterrupt
            self._signalled.set()
            # In a thread, because the signal may have interrupted code that holds the console's lock.
            threading.Thread(target=notify, args=(STOPPING_MESSAGE,), name="memtune-stopping").start()

        previous = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        caught = [n for n in STOP_SIGNALS if n is signal.SIGINT or not is_ignored(n)]
        for number in caught:
            signal.signal(number, handle_signal)
        try:
            yield
        finally:
            for number in caught:
                if number is signal.SIGINT or not is_ignored(number):
                    signal.signal(number, previous[number])
