"""Bounded queues of commands, one per key, delivered in order by one thread that retries.

A delivery that fails because the receiver is unavailable is retried with growing pauses. A command that is
refused permanently is dropped, logged as an error and kept in `problems`. The queue does not look into the
commands.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from memtune.retry import Backoff

__all__ = ["DeliveryQueue"]

Key = TypeVar("Key", bound=Hashable)
Message = TypeVar("Message")

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
MAX_WAITING_COMMANDS = 10_000
"""About 20 MB: the reports of 1,000 to 2,000 short trials."""
MAX_DOUBTFUL_ATTEMPTS = 12
"""Attempts after an error that may be permanent or transient; the pauses between them add up to 40 s."""
PROGRESS_SECONDS = 10.0

logger = logging.getLogger(__name__)


def _is_never(error: Exception) -> bool:
    return False


class DeliveryQueue(Generic[Key, Message]):
    """Queues by key, emptied by a thread.

    `deliver(key, commands)` carries out commands from the left and removes each once it is done; when it
    raises, the remaining commands are retried. The leftmost command is dropped at once if
    `is_permanent(error)`, and after MAX_DOUBTFUL_ATTEMPTS attempts if `is_doubtful(error)`.
    """

    def __init__(
        self,
        deliver: Callable[[Key, deque[Message]], None],
        is_permanent: Callable[[Exception], bool],
        is_doubtful: Callable[[Exception], bool] = _is_never,
        capacity: int = MAX_WAITING_COMMANDS,
    ) -> None:
        self.problems: list[str] = []
        self._deliver = deliver
        self._is_permanent = is_permanent
        self._is_doubtful = is_doubtful
        self._capacity = capacity
        self._queues: dict[Key, deque[Message]] = {}
        self._taken: deque[Message] = deque()
        self._put_count = 0
        self._busy = False
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(
            target=self._deliver_until_closed, name="memtune-tracking", daemon=True
        )
        self._thread.start()

    def put(self, key: Key, *commands: Message) -> None:
        """Add commands to the key's queue; wait while the queues are full.

        Waiting bounds the memory and loses nothing: training runs in other processes meanwhile.
        """
        with self._changed:
            if self._count_waiting() >= self._capacity:
                self._wait_for_space()
            self._queues.setdefault(key, deque()).extend(commands)
            self._put_count += len(commands)
            self._changed.notify_all()

    def flush(self, stall_seconds: float) -> bool:
        """Wait until everything is delivered; return False after `stall_seconds` without progress.

        Logs the number of commands left every
        PROGRESS_SECONDS.
        """
        with self._changed:
            delivered, stalled_at = self._count_delivered(), time.monotonic() + stall_seconds
            progress_at = time.monotonic() + PROGRESS_SECONDS
            while self._queues or self._busy:
                if time.monotonic() >= stalled_at:
                    return False
                self._changed.wait(min(1.0, stalled_at - time.monotonic()))
                if self._count_delivered() > delivered:
                    delivered, stalled_at = self._count_delivered(), time.monotonic() + stall_seconds
                if time.monotonic() >= progress_at:
                    logger.warning("recording: %s entries left", f"{self._count_waiting():,}")
                    progress_at += PROGRESS_SECONDS
            return True

    def close(self, stall_seconds: float) -> bool:
        """Flush, then end the thread; return whether everything was delivered."""
        delivered = self.flush(stall_seconds)
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(MAX_PAUSE_SECONDS if delivered else FIRST_PAUSE_SECONDS)
        return delivered

    def abandon(self) -> None:
        """Deliver nothing more and release everyone who waits."""
        with self._changed:
            self._closing.set()
            self._queues.clear()
            self._changed.notify_all()

    def _wait_for_space(self) -> None:
        """Wait until half of the capacity is free, so that the caller is not woken for every command."""
        logger.warning(
            "tracking is behind: the search waits until half of %s entries are recorded",
            f"{self._count_waiting():,}",
        )
        while self._count_waiting() > self._capacity // 2 and not self._closing.is_set():
            self._changed.wait(1.0)

    def _count_waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values()) + len(self._taken)

    def _count_delivered(self) -> int:
        return self._put_count - self._count_waiting()

    def _deliver_until_closed(self) -> None:
        while (key := self._take_next()) is not None:
            self._deliver_all(key, self._taken)
            with self._changed:
                self._busy = False
                self._taken = deque()
                self._changed.notify_all()

    def _take_next(self) -> Key | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queues or self._closing.is_set())
            if self._closing.is_set():
                return None
            key = next(iter(self._queues))
            self._busy = True
            self._taken = self._queues.pop(key)
            return key

    def _deliver_all(self, key: Key, commands: deque[Message]) -> None:
        """Deliver until nothing is left or the queue closes; log one warning per outage.

        Not `memtune.retry.retry`: a permanent error drops one command, and the others are delivered.
        """
        backoff, failed_since, attempts = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS), None, 0
        while commands and not self._closing.is_set():
            left = len(commands)
            try:
                self._deliver(key, commands)
            except Exception as error:
                attempts = attempts + 1 if len(commands) == left and self._is_doubtful(error) else 0
                if self._is_permanent(error) or attempts >= MAX_DOUBTFUL_ATTEMPTS:
                    self._drop(key, commands.popleft(), error)
                    backoff.reset()
                    attempts = 0
                    continue
                if failed_since is None:
                    failed_since = time.monotonic()
                    logger.warning("tracking is unavailable, entries are kept and retried: %s", error)
                self._closing.wait(backoff.next_pause())
        if failed_since is not None and not commands:
            logger.warning("tracking is available again after %.0f s", time.monotonic() - failed_since)

    def _drop(self, key: Key, command: Message, error: Exception) -> None:
        problem = f"{type(command).__name__} of {key} was not recorded: {error}"
        self.problems.append(problem)
        logger.error("%s", problem)
