"""A notice to the workers of one run, on any node, to store a checkpoint and end.

The notice is a key in the store of Ray's head. A worker is busy in a training step, where Ray's calls to its
actor wait, so a thread of the worker looks for the key.
"""

import threading
import uuid
from contextlib import suppress

from memtune.ray_backend.compatibility import delete_shared_key, has_shared_key, put_shared_key

POLL_SECONDS = 0.3
"""Seconds between two looks of a worker at the notice."""


class StopNotice:
    """The driver's side of the notice; a context manager that removes it."""

    def __init__(self) -> None:
        self.key = f"memtune-stop-{uuid.uuid4().hex}"

    def publish(self) -> None:
        """Ask the workers to end."""
        put_shared_key(self.key)

    def __enter__(self) -> "StopNotice":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(Exception):  # the head of a cluster may be gone
            delete_shared_key(self.key)


class StopWatcher:
    """The worker's side: looks for one run's notice until it is found or the watcher is closed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._found, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, name="memtune-stop-watcher", daemon=True).start()

    def is_stopping(self) -> bool:
        """Whether the run should end."""
        return self._found.is_set()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            with suppress(Exception):  # a head that does not answer now
                if has_shared_key(self.key):
                    self._found.set()
                    return
