"""Polling with a timeout."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["TIMEOUT_SECONDS", "is_stopped", "poll_until"]

TIMEOUT_SECONDS = 240
"""Long enough for a study or a server on a busy machine."""
T = TypeVar("T")


def poll_until(
    condition: Callable[[], T | None], awaited: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> T:
    """The first true value of the condition. AssertionError that names what was awaited after the timeout."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"timed out after {timeout_seconds:.0f} s while waiting for {awaited}")


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has stopped a process: it takes effect after the call that sends it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")
