"""Patience with a study's storage that is away: what is to be written waits, and is tried again.

Training does not need the storage, so a driver must not stand still for it. A write that fails because the
storage does not answer is kept, with all that come after it, and tried again with growing pauses, in order;
a question is refused until the writes are done. Every write may be repeated, because the storage may have
carried out the one whose answer was lost.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    OperationalError,
    PendingRollbackError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from memtune.errors import StorageError
from memtune.search.samplers import quiet

__all__ = ["LIMIT", "Patience", "StorageAwayError", "answering", "is_away", "why"]

LIMIT = 600.0
"""Seconds a storage may be away: a restart, a managed database's failover and a reboot of its machine take
less, and longer than this a cluster's idle workers do not stay."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds between two attempts; one at a machine that is gone takes up to five itself."""

T = TypeVar("T")
Write = Callable[[bool], None]
"""Told whether it was tried before."""

logger = logging.getLogger(__name__)


class StorageAwayError(StorageError):
    """The study's storage does not answer. `for_good`: it had its time."""

    def __init__(self, message: str, for_good: bool) -> None:
        """The message says what the storage said."""
        super().__init__(message)
        self.for_good = for_good


def is_away(error: Exception) -> bool:
    """Whether a storage raised this because it does not answer now, rather than because of what was asked."""
    if isinstance(error, StorageInternalError):
        return not isinstance(error.__cause__, SQLAlchemyError) or is_away(error.__cause__)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    # PendingRollbackError: the connection was lost earlier in the same transaction.
    away = OSError | InterfaceError | OperationalError | PendingRollbackError | PoolTimeoutError
    return isinstance(error, away)


def why(error: BaseException) -> str:
    """What the database said, without what is wrapped around it."""
    inner: BaseException | None = error
    while isinstance(inner, StorageInternalError | SQLAlchemyError):
        error, inner = inner, getattr(inner, "orig", None) or inner.__cause__
    return " ".join(str(inner or error).split())


@contextmanager
def answering(shown: str) -> Iterator[None]:
    """Turn what a storage that is away raises in the block into a StorageError that names it."""
    try:
        yield
    except Exception as error:
        if not is_away(error):
            raise
        raise StorageError(f"the study's storage {shown} does not answer: {why(error)}") from error


class Patience:
    """One storage's outages, and the writes that wait for their end."""

    def __init__(
        self, shown: str, limit: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`shown` names the storage in messages."""
        self._shown, self._clock = shown, clock
        self._limit = LIMIT if limit is None else limit
        self._waiting: deque[tuple[Write, bool]] = deque()
        self._since: float | None = None
        self._next, self._pause, self._said = 0.0, FIRST_PAUSE, ""

    def write(self, write: Write) -> None:
        """Carry out a write after those that wait, now or when the storage is back.

        Raises what the write raises for any other reason than a storage that is away.
        """
        self._waiting.append((write, False))
        if self._is_due():
            self._empty()

    def ask(self, question: Callable[[], T]) -> T:
        """What the question gives, once all writes are done; StorageAwayError when that cannot be now."""
        if not self._is_due() or not self._empty():
            raise self._away()
        try:
            with quiet():
                answer = question()
        except Exception as error:
            self._heard(error)
            raise self._away() from error
        self._back()
        return answer

    def insist(self, question: Callable[[], T]) -> T:
        """What the question gives, waiting for the storage as long as it may be away; then StorageAwayError.

        It is asked once at least, also when the storage has had its time.
        """
        self._next = self._clock()
        while True:
            try:
                return self.ask(question)
            except StorageAwayError as away:
                if away.for_good:
                    raise
            time.sleep(max(0.0, self._next - self._clock()))

    def _is_due(self) -> bool:
        return self._since is None or self._clock() >= self._next

    def _empty(self) -> bool:
        """Carry out what waits; whether nothing is left."""
        while self._waiting:
            write, again = self._waiting.popleft()
            try:
                with quiet():
                    write(again)
            except Exception as error:
                if is_away(error):
                    self._waiting.appendleft((write, True))
                self._heard(error)
                return False
            self._back()
        return True

    def _heard(self, error: Exception) -> None:
        """Note an outage; any other error is raised again."""
        if not is_away(error):
            raise error
        if self._since is None:
            self._since = self._clock()
            logger.warning(
                "the study's storage %s is away; training goes on, and it is tried for %.0f minutes: %s",
                self._shown,
                self._limit / 60,
                why(error),
            )
        self._said = why(error)
        self._next = self._clock() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _back(self) -> None:
        if self._since is not None:
            logger.warning("the study's storage is back after %.0f s", self._clock() - self._since)
        self._since, self._pause = None, FIRST_PAUSE

    def _away(self) -> StorageAwayError:
        assert self._since is not None
        away = self._clock() - self._since
        return StorageAwayError(
            f"the study's storage {self._shown} has not answered for {away:.0f} s: {self._said}; when "
            "it does, go on with --resume: workers' results are in their checkpoints",
            for_good=away >= self._limit,
        )
