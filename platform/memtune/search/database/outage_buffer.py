"""Retries of writes to the study database while it is unavailable.

Training does not need the storage, so a driver does not wait for it. A write that fails because the storage
does not answer stays in a queue with all later writes, and is retried in order with growing pauses. Reads are
refused until the queue is empty. Every write may be repeated, because the storage may have carried out one
whose answer was lost.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from optuna.exceptions import StorageInternalError
from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction
from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    OperationalError,
    PendingRollbackError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from memtune.errors import StorageError
from memtune.retry import Backoff, retry
from memtune.search.compatibility import suppress_optuna_messages

OUTAGE_LIMIT_SECONDS = 600.0
"""Seconds that a storage may be unavailable: a restart, a managed database's failover and a reboot of its
machine take less, and a cluster keeps idle workers for about as long."""
FIRST_RETRY_PAUSE_SECONDS, MAX_RETRY_PAUSE_SECONDS = 0.5, 15.0
"""Seconds between two attempts. Connecting to a machine that is down takes up to five seconds more."""

T = TypeVar("T")
BufferedWrite = Callable[[], None]

logger = logging.getLogger(__name__)


class StorageUnavailableError(StorageError):
    """The study database does not answer."""

    def __init__(self, message: str, permanent: bool) -> None:
        """`permanent` says that the outage is longer than the limit."""
        super().__init__(message)
        self.permanent = permanent


def is_unavailable(error: Exception) -> bool:
    """Whether a storage raised this because it does not answer or refuses writes now.

    PostgreSQL refuses them as a replica during a failover, and where a privilege was revoked.
    """
    if isinstance(error, StorageInternalError):
        return not isinstance(error.__cause__, SQLAlchemyError) or is_unavailable(error.__cause__)
    if isinstance(error, DBAPIError):
        is_refused = isinstance(error.orig, InsufficientPrivilege | ReadOnlySqlTransaction)
        if is_refused or error.connection_invalidated:
            return True
    # PendingRollbackError: the connection was lost earlier in the same transaction.
    outages = OSError | InterfaceError | OperationalError | PendingRollbackError | PoolTimeoutError
    return isinstance(error, outages)


def describe_cause(error: BaseException) -> str:
    """The database's own message, without those of the libraries around it."""
    inner: BaseException | None = error
    while isinstance(inner, StorageInternalError | SQLAlchemyError):
        error, inner = inner, getattr(inner, "orig", None) or inner.__cause__
    return " ".join(str(inner or error).split())


@contextmanager
def convert_outage_errors(redacted_url: str) -> Iterator[None]:
    """Turn the errors of an unavailable storage into a StorageError that names the storage."""
    try:
        yield
    except Exception as error:
        if not is_unavailable(error):
            raise
        raise StorageError(
            f"the study database {redacted_url} does not answer: {describe_cause(error)}"
        ) from error


class OutageBuffer:
    """The writes that wait for one storage, and the state of its outage."""

    def __init__(self, redacted_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`redacted_url` names the storage in messages."""
        self._redacted_url, self._clock = redacted_url, clock
        self._pending_writes: deque[BufferedWrite] = deque()
        self._backoff = Backoff(FIRST_RETRY_PAUSE_SECONDS, MAX_RETRY_PAUSE_SECONDS)
        self._outage_start: float | None = None
        self._next_attempt, self._last_error = 0.0, ""

    def write(self, write: BufferedWrite) -> None:
        """Write after the queued ones, now or after the outage; raises what the write raises otherwise."""
        self._pending_writes.append(write)
        if self._is_due():
            self._flush_writes()

    def try_once(self, operation: Callable[[], T]) -> T:
        """The operation's result, after all queued writes.

        Raises StorageUnavailableError when the storage does not answer, or before the next attempt is due.
        """
        if not self._is_due() or not self._flush_writes():
            raise self._make_unavailable_error()
        try:
            with suppress_optuna_messages():
                result = operation()
        except Exception as error:
            self._record_failure(error)
            raise self._make_unavailable_error() from error
        self._record_recovery()
        return result

    def retry_until(self, operation: Callable[[], T]) -> T:
        """The operation's result, after an outage where there is one.

        Makes one attempt at least. Raises StorageUnavailableError when the outage is longer than the limit.
        """
        self._next_attempt = self._clock()
        return retry(
            lambda: self.try_once(operation),
            is_transient=lambda error: isinstance(error, StorageUnavailableError) and not error.permanent,
            next_pause=lambda: max(0.0, self._next_attempt - self._clock()),
        )

    def _is_due(self) -> bool:
        return self._outage_start is None or self._clock() >= self._next_attempt

    def _flush_writes(self) -> bool:
        """Carry out the queued writes; return whether the queue is empty."""
        while self._pending_writes:
            write = self._pending_writes.popleft()
            try:
                with suppress_optuna_messages():
                    write()
            except Exception as error:
                if is_unavailable(error):
                    self._pending_writes.appendleft(write)
                self._record_failure(error)
                return False
            self._record_recovery()
        return True

    def _record_failure(self, error: Exception) -> None:
        """Record an outage; raise any other error again."""
        if not is_unavailable(error):
            raise error
        if self._outage_start is None:
            self._outage_start = self._clock()
            logger.warning(
                "the study database %s is unavailable; training continues, and it is retried for %.0f "
                "minutes: %s",
                self._redacted_url,
                OUTAGE_LIMIT_SECONDS / 60,
                describe_cause(error),
            )
        self._last_error = describe_cause(error)
        self._next_attempt = self._clock() + self._backoff.next_pause()

    def _record_recovery(self) -> None:
        if self._outage_start is not None:
            logger.warning(
                "the study database is available again after %.0f s", self._clock() - self._outage_start
            )
        self._outage_start = None
        self._backoff.reset()

    def _make_unavailable_error(self) -> StorageUnavailableError:
        assert self._outage_start is not None
        seconds = self._clock() - self._outage_start
        return StorageUnavailableError(
            f"the study database {self._redacted_url} has not answered for {seconds:.0f} s: "
            f"{self._last_error}; when it answers, continue with --resume: checkpoints hold the results",
            permanent=seconds >= OUTAGE_LIMIT_SECONDS,
        )
