"""Opens a study's database: a sqlite file, a PostgreSQL database, or a journal file.

The network shows that a machine is down. It does not show that a server is stopped or that its disk hangs,
because the operating system still acknowledges packets. So the client also measures how long no data arrives.

A killed writer or a full disk may leave an incomplete line, which would make the journal unreadable. And
Optuna creates the file again when it was deleted under a running study: the driver would write into an empty
journal, and every result of the study would be lost without an error.
"""

import math
import os
import re
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import optuna
import psycopg
from alembic.runtime.migration import MigrationContext
from optuna.exceptions import StorageInternalError
from optuna.storages.journal import JournalFileBackend
from psycopg.abc import RV, PQGen
from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from memtune.errors import StorageError, StudyError
from memtune.retry import retry
from memtune.search.compatibility import JournalLock, add_read_cache, forget_offsets
from memtune.search.database.outage_buffer import describe_cause
from memtune.storage.uris import JOURNAL_PREFIX, SQLITE_PREFIX, find_path

MISSING_LIMIT_SECONDS = 30.0
"""Seconds that the file may be missing, as while a network file system is remounted; then it is deleted."""

MAX_SHOWN_CHARACTERS = 80


class CrashSafeJournal(JournalFileBackend):
    """The journal at a path, created when it is new.

    Reading and writing raise FileNotFoundError while the file is missing, which an outage buffer treats as an
    unavailable storage, and StudyError once it counts as deleted or is shorter than it was.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the journal; nothing is written to one that exists.

        Raises StorageError for anything but a file: a device never ends, and a pipe never answers.
        """
        if path.exists() and not path.is_file():
            raise StorageError(f"the journal of studies {path} is not a regular file; name another path")
        self._journal_path, self._clock = path, clock
        super().__init__(str(path), JournalLock(str(path), self._cut_incomplete_line))
        self._missing_since: float | None = None
        self._min_size = 0

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """The changes from a number on. Raises StudyError for a line that Optuna did not write."""
        self._check_file()
        forget_offsets(self, log_number_from)
        try:
            for change in super().read_logs(log_number_from):
                if not (isinstance(change, dict) and isinstance(change.get("op_code"), int)):
                    raise self._make_damage_error(f"a change is {str(change)[:MAX_SHOWN_CHARACTERS]}")
                yield change
        except (ValueError, RecursionError) as error:  # also numbers over 4,300 digits, and deep brackets
            raise self._make_damage_error(str(error)) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add changes, each as a whole line or not at all."""
        self._check_file()
        super().append_logs(logs)
        with self._journal_path.open("rb") as file:
            # The larger one, because a file that is deleted between the check and the write is created anew.
            self._min_size = max(self._min_size, _find_end(file))

    def _make_damage_error(self, reason: str) -> StudyError:
        return StudyError(f"the journal of studies {self._journal_path} is damaged: {reason}; restore it")

    def _check_file(self) -> None:
        """Raise unless the file holds at least what this process has written to it."""
        try:
            size = self._journal_path.stat().st_size
        except FileNotFoundError:
            now = self._clock()
            self._missing_since = now if self._missing_since is None else self._missing_since
            if now - self._missing_since >= MISSING_LIMIT_SECONDS:
                raise StudyError(
                    f"the study's journal {self._journal_path} was deleted while the study was running; "
                    "restore it and continue with --resume, or start the study again"
                ) from None
            raise
        self._missing_since = None
        if size < self._min_size:  # not the inode, which some network file systems change
            raise StudyError(
                f"the study's journal {self._journal_path} has {size:,} bytes, and had {self._min_size:,}: "
                "it was replaced or truncated while the study was running; restore it and continue with "
                "--resume"
            )

    def _cut_incomplete_line(self) -> None:
        """Cut off what a killed writer left, of any process; called with the lock held."""
        with self._journal_path.open("r+b") as file:
            end = _find_end(file)
            if end < file.seek(0, os.SEEK_END):
                file.truncate(end)


def _find_end(journal: BinaryIO) -> int:
    """Where the last whole line of a journal ends; another process may be writing the next one."""
    end = journal.seek(0, os.SEEK_END)
    while end > 0 and os.pread(journal.fileno(), 1, end - 1) != b"\n":
        end -= 1
    return end


ANSWER_TIMEOUT_SECONDS = 10.0
"""Seconds without data in the middle of an answer, after which the connection is closed."""
CONNECTION_OPTIONS = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10}
"""How soon libpq detects that a machine is down (seconds, milliseconds, seconds); the driver is blocked
meanwhile. Without `tcp_user_timeout` an open connection hangs for a quarter of an hour."""
POLL_SECONDS = 0.1
"""Seconds between two reads of the clock while no data arrives."""


class TimeoutConnection(psycopg.Connection[Any]):
    """A connection that closes itself when the server sends no data in the middle of an answer."""

    def wait(self, gen: PQGen[RV], interval: float = POLL_SECONDS, timeout: float | None = None) -> RV:
        """The result of a query's steps. Raises psycopg.OperationalError after the timeout."""
        return super().wait(self._close_on_timeout(gen), interval, timeout)

    def _close_on_timeout(self, steps: PQGen[RV]) -> PQGen[RV]:
        """The steps unchanged; psycopg resumes them every `interval` seconds while no data arrives."""
        last = time.monotonic()
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    last = now
                elif now - last >= ANSWER_TIMEOUT_SECONDS:
                    self.close()
                    raise psycopg.OperationalError(f"the server sent nothing for {now - last:.0f} s")
                wanted = steps.send(ready)
        except StopIteration as end:
            found: RV = end.value
            return found


def make_connector(url: URL) -> Callable[[], TimeoutConnection]:
    """A function that connects to the database of a URL of the dialect "postgresql+psycopg"."""
    dialect = url.get_dialect()(dbapi=psycopg)  # type: ignore[call-arg]
    arguments, options = dialect.create_connect_args(url)
    limited: dict[str, Any] = {**options, **CONNECTION_OPTIONS}
    return lambda: TimeoutConnection.connect(*arguments, **limited)


POSTGRESQL_PREFIX = "postgresql"
LOCK_TIMEOUT_SECONDS = 60
"""Seconds to wait for another writer's lock on a sqlite file."""
CREATE_TABLES_TIMEOUT_SECONDS = 30.0
"""Seconds that another driver may take to create a new database's tables, on a busy machine."""
CREATE_TABLES_RETRY_SECONDS = 0.2
DATABASE_ERRORS = (SQLAlchemyError, StorageInternalError)
"""What Optuna raises for a fault of the database: sometimes the database's error, sometimes its own."""


def has_study_database(url: str) -> bool:
    """Whether the file of a study database exists; True for a server, and where only opening it can tell."""
    path = find_path(url, JOURNAL_PREFIX) or find_path(url, SQLITE_PREFIX)
    try:
        return path is None or path.stat() is not None
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


def open_study_database(url: str) -> optuna.storages.BaseStorage:
    """The storage at sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:///FILE, created when new.

    A journal has one line per change. It works on network file systems, where sqlite's locks do not. Raises
    StorageError when the storage cannot be opened.
    """
    try:
        if journal := find_path(url, JOURNAL_PREFIX):
            # POSIX gives two leading slashes a meaning of their own; journal:////FILE names /FILE. Absolute,
            # because the lock is a symbolic link next to the file, whose target must not depend on where the
            # process runs.
            path = Path(re.sub("^//+", "/", str(journal))).absolute()
            _make_parent_folder(path)
            return optuna.storages.JournalStorage(CrashSafeJournal(path))
        if file := find_path(url, SQLITE_PREFIX):
            _make_parent_folder(file)
            return _open_database(url, {"connect_args": {"timeout": LOCK_TIMEOUT_SECONDS}})
        if url.startswith(POSTGRESQL_PREFIX):
            address = make_url(url).set(drivername="postgresql+psycopg")
            options = {"pool_pre_ping": True, "creator": make_connector(address)}
            return _open_database(address.render_as_string(hide_password=False), options)
    except (OSError, ValueError, ArgumentError, *DATABASE_ERRORS) as error:
        raise StorageError(
            f"the study database {redact_url(url)} cannot be opened: {describe_cause(error)}"
        ) from error
    raise StorageError(
        f"no kind of storage known in {redact_url(url)!r}; "
        "use sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:///FILE"
    )


def find_max_tokens(url: str) -> float:
    """The most tokens of a report: Optuna's column is an INTEGER, of 32 bits in PostgreSQL, 64 in sqlite."""
    return 2**31 - 1 if url.startswith(POSTGRESQL_PREFIX) else math.inf


def redact_url(url: str) -> str:
    """The URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _open_database(url: str, engine_options: dict[str, Any]) -> optuna.storages.BaseStorage:
    """Open a database. Of several drivers that create its tables at once, all but one fail, and try again.

    Their errors differ between databases and moments. So the tables decide whether to try again, and not the
    error. Raises the database's error where they are not complete after 30 s.
    """
    was_complete = False

    def open_complete() -> optuna.storages.RDBStorage:
        nonlocal was_complete
        with _connect(url, engine_options) as connection:
            # Optuna writes the schema's revision after everything else.
            was_complete = MigrationContext.configure(connection).get_current_revision() is not None
        return optuna.storages.RDBStorage(url, engine_kwargs=engine_options)

    try:
        database = optuna.storages.RDBStorage(url, engine_kwargs=engine_options)
    except DATABASE_ERRORS:
        if not _has_tables(url, engine_options):
            raise
        database = retry(
            open_complete,
            is_transient=lambda error: isinstance(error, DATABASE_ERRORS) and not was_complete,
            next_pause=lambda: CREATE_TABLES_RETRY_SECONDS,
            timeout_seconds=CREATE_TABLES_TIMEOUT_SECONDS,
        )
    weakref.finalize(database, database.engine.dispose)
    return add_read_cache(database)


def _has_tables(url: str, engine_options: dict[str, Any]) -> bool:
    """Whether the database has any table; False where it cannot be read."""
    try:
        with _connect(url, engine_options) as connection:
            return bool(inspect(connection).get_table_names())
    except SQLAlchemyError:
        return False


@contextmanager
def _connect(url: str, engine_options: dict[str, Any]) -> Iterator[Connection]:
    engine = create_engine(url, **engine_options)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _make_parent_folder(path: Path) -> None:
    if path.name and path.name != ":memory:":
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
