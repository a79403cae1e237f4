"""The signals that ask a process to end, and the terminal that is gone when one of them arrives."""

import errno
import os
import signal
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DESCRIPTORS = (1, 2)
"""Of standard output and standard error."""
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
"""The file of the frames that import a module."""


def end_on_stop_signals() -> None:
    """From now on, a stop signal ends this process with a line and exit code 1.

    That is for a program that loads its modules or ends; its work is in `interrupt_on_stop_signals`.
    """
    for number in _list_caught():
        signal.signal(number, _end_process)


@contextmanager
def interrupt_on_stop_signals() -> Iterator[None]:
    """In the block, SIGTERM and the SIGHUP of a closed terminal raise KeyboardInterrupt, like Ctrl-C.

    While a module is imported, each ends the process with a line and exit code 1: NumPy and others do not
    survive an exception there. A signal that the process ignores stays ignored, as under `nohup`. Does
    nothing outside the main thread, where Python installs no signal handlers.
    """
    previous = {number: signal.signal(number, _raise_interrupt) for number in _list_caught()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            # A handler that has replaced this one since then stays, such as the one that ignores SIGHUP.
            if signal.getsignal(number) is _raise_interrupt:
                signal.signal(number, handler)


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Install the handlers of the stop signals again after the block, which may replace them.

    ray.init does so: at SIGTERM its library prints a native stack, and Python exits with code 15. Does
    nothing outside the main thread.
    """
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if callable(handler):  # the process has chosen one
                    signal.signal(number, handler)


@contextmanager
def start_processes_without(*numbers: signal.Signals) -> Iterator[None]:
    """Processes that this thread starts in the block never receive these signals.

    A shell sends the SIGHUP of a closed terminal to all processes of its job, and Ray the signal that stops
    a job to all descendants of its driver. Those that the driver needs for an orderly end must outlive it,
    and the driver ends them. A process inherits the blocked signals of the thread that starts it. A signal to
    this process is delivered after the block.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def is_ignored(number: int) -> bool:
    """Whether the process ignores a signal."""
    return signal.getsignal(number) is signal.SIG_IGN


def release_closed_terminal() -> None:
    """After SIGHUP: ignore another one, and discard what is still printed to a terminal that is closed.

    A closing terminal sends SIGHUP more than once, from its shell and from the kernel; the second must not
    break off what the first started. Printing to it would fail with EIO wherever progress is reported.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for output in DESCRIPTORS:
        if _is_closed_terminal(output):
            discarded = os.open(os.devnull, os.O_WRONLY)
            os.dup2(discarded, output)
            os.close(discarded)


def _is_closed_terminal(descriptor: int) -> bool:
    try:
        termios.tcgetattr(descriptor)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


def _list_caught() -> list[signal.Signals]:
    """The stop signals that this thread can catch and the process does not ignore."""
    is_main = threading.current_thread() is threading.main_thread()
    return [number for number in STOP_SIGNALS if is_main and not is_ignored(number)]


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        release_closed_terminal()
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            _end_process(number, frame)
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_process(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # of a closed terminal
        os.write(2, b"interrupted\n")
    os._exit(1)
