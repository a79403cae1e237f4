"""A post: commands for named receivers, delivered in order by one thread that does not give up.

Knows nothing of what it carries. A delivery that fails because the other side is away is tried again with
growing pauses; one that can never succeed is dropped, logged as an error and counted among the problems.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Post"]

Key = TypeVar("Key", bound=Hashable)
Command = TypeVar("Command")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

logger = logging.getLogger(__name__)


class Post(Generic[Key, Command]):
    """Outboxes by key, emptied by a thread.

    `deliver(key, commands)` carries out commands from the left and removes each once it is done; when it
    raises, what is left is tried again, unless `is_hopeless(error)`: then the leftmost command is dropped.
    """

    def __init__(
        self, deliver: Callable[[Key, deque[Command]], None], is_hopeless: Callable[[Exception], bool]
    ) -> None:
        self.problems: list[str] = []
        self._deliver = deliver
        self._is_hopeless = is_hopeless
        self._outboxes: dict[Key, deque[Command]] = {}
        self._busy = False
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="memtune-tracking", daemon=True)
        self._thread.start()

    def put(self, key: Key, *commands: Command) -> None:
        """Add commands to the key's outbox and return at once."""
        with self._changed:
            self._outboxes.setdefault(key, deque()).extend(commands)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for everything to be delivered; whether it was."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._outboxes and not self._busy, timeout)

    def close(self, timeout: float) -> bool:
        """Flush, then end the thread; whether everything was delivered."""
        delivered = self.flush(timeout)
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(LONGEST_PAUSE if delivered else FIRST_PAUSE)
        return delivered

    def abandon(self) -> None:
        """Deliver nothing more, and let nobody wait for it."""
        with self._changed:
            self._closing.set()
            self._outboxes.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            self._deliver_all(*taken)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _take(self) -> tuple[Key, deque[Command]] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._outboxes or self._closing.is_set())
            if self._closing.is_set():
                return None
            key = next(iter(self._outboxes))
            self._busy = True
            return key, self._outboxes.pop(key)

    def _deliver_all(self, key: Key, commands: deque[Command]) -> None:
        """Until nothing is left or the post closes; one warning for as long as the other side is away."""
        pause, away_since = FIRST_PAUSE, None
        while commands and not self._closing.is_set():
            try:
                self._deliver(key, commands)
            except Exception as error:
                if self._is_hopeless(error):
                    self._drop(key, commands.popleft(), error)
                    continue
                if away_since is None:
                    away_since = time.monotonic()
                    logger.warning(
                        "tracking is away, keeping what there is to record and trying again: %s", error
                    )
                self._closing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        if away_since is not None and not commands:
            logger.warning("tracking is back after %.0f s", time.monotonic() - away_since)

    def _drop(self, key: Key, command: Command, error: Exception) -> None:
        problem = f"{type(command).__name__} of {key} was not recorded: {error}"
        self.problems.append(problem)
        logger.error("%s", problem)
