"""Opens a study's database: a sqlite file, a PostgreSQL database, or a journal file."""

import math
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from alembic.runtime.migration import MigrationContext
from optuna.exceptions import StorageInternalError
from sqlalchemy import Connection, create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from memtune.errors import StorageError
from memtune.retry import retry
from memtune.search.compatibility import add_read_cache
from memtune.search.database.crash_safe_journal import CrashSafeJournal
from memtune.search.database.outage_buffer import describe_cause
from memtune.storage.path_uris import JOURNAL_PREFIX, SQLITE_PREFIX, find_path

__all__ = ["JOURNAL_PREFIX", "find_max_tokens", "open_study_database", "redact_url"]

POSTGRESQL_PREFIX = "postgresql"
LOCK_TIMEOUT_SECONDS = 60
"""Seconds to wait for another writer's lock on a sqlite file."""
CREATE_TABLES_TIMEOUT_SECONDS = 30.0
"""Seconds that another driver may take to create a new database's tables, on a busy machine."""
CREATE_TABLES_RETRY_SECONDS = 0.2
DATABASE_ERRORS = (SQLAlchemyError, StorageInternalError)
"""What Optuna raises for a fault of the database: sometimes the database's error, sometimes its own."""


def open_study_database(url: str) -> optuna.storages.BaseStorage:
    """The storage at sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:///FILE, created when new.

    A journal has one line per change. It works on network file systems, where sqlite's locks do not. Raises
    StorageError when the storage cannot be opened.
    """
    try:
        if journal := find_path(url, JOURNAL_PREFIX):
            # POSIX gives two leading slashes a meaning of their own; journal:////FILE names /FILE.
            return _open_journal(Path(re.sub("^//+", "/", str(journal))))
        if file := find_path(url, SQLITE_PREFIX):
            _make_parent_folder(file)
            return _open_database(url, {"connect_args": {"timeout": LOCK_TIMEOUT_SECONDS}})
        if url.startswith(POSTGRESQL_PREFIX):
            return _open_postgresql(make_url(url).set(drivername="postgresql+psycopg"))
    except ImportError as error:
        raise StorageError(
            f"{redact_url(url)} needs a database driver that is not installed; install 'psycopg[binary]'"
        ) from error
    except (OSError, ValueError, ArgumentError, *DATABASE_ERRORS) as error:
        raise StorageError(
            f"the study's storage {redact_url(url)} cannot be opened: {describe_cause(error)}"
        ) from error
    raise StorageError(
        f"no kind of storage known in {redact_url(url)!r}; "
        "use sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:///FILE"
    )


def find_max_tokens(url: str) -> float:
    """The largest number of tokens that a report in this storage can have.

    Optuna's column for it is an INTEGER, which has 32 bits in PostgreSQL and 64 in sqlite.
    """
    return 2**31 - 1 if url.startswith(POSTGRESQL_PREFIX) else math.inf


def redact_url(url: str) -> str:
    """The URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _open_database(url: str, engine_options: dict[str, Any]) -> optuna.storages.BaseStorage:
    try:
        database = optuna.storages.RDBStorage(url, engine_kwargs=engine_options)
    except DATABASE_ERRORS:
        creation = _TableCreation(url, engine_options)
        if not creation.has_begun():
            raise
        database = creation.wait_and_open()
    weakref.finalize(database, database.engine.dispose)
    return add_read_cache(database)


class _TableCreation:
    """The creation of a new database's tables by another driver.

    Of several drivers that create the tables at once, all but one fail, with errors that differ between
    databases and moments. So the tables decide whether to try again, and not the error.
    """

    def __init__(self, url: str, engine_options: dict[str, Any]) -> None:
        self._url, self._engine_options = url, engine_options
        self._was_complete = False

    def has_begun(self) -> bool:
        """Whether the database has any table; False where it cannot be read."""
        try:
            with self._connect() as connection:
                return bool(inspect(connection).get_table_names())
        except SQLAlchemyError:
            return False

    def wait_and_open(self) -> optuna.storages.RDBStorage:
        """Open the database once its tables are complete. Raises the database's error after 30 s."""
        return retry(
            self._open,
            is_transient=lambda error: isinstance(error, DATABASE_ERRORS) and not self._was_complete,
            next_pause=lambda: CREATE_TABLES_RETRY_SECONDS,
            timeout_seconds=CREATE_TABLES_TIMEOUT_SECONDS,
        )

    def _open(self) -> optuna.storages.RDBStorage:
        self._was_complete = self._is_complete()
        return optuna.storages.RDBStorage(self._url, engine_kwargs=self._engine_options)

    def _is_complete(self) -> bool:
        """Whether the schema's revision is stored, which Optuna writes after everything else."""
        with self._connect() as connection:
            return MigrationContext.configure(connection).get_current_revision() is not None

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        engine = create_engine(self._url, **self._engine_options)
        try:
            with engine.connect() as connection:
                yield connection
        finally:
            engine.dispose()


def _open_postgresql(url: URL) -> optuna.storages.BaseStorage:
    # Imported here: psycopg is needed for PostgreSQL only.
    from memtune.search.database.postgresql_connection import make_connector

    options = {"pool_pre_ping": True, "creator": make_connector(url)}
    return _open_database(url.render_as_string(hide_password=False), options)


def _open_journal(path: Path) -> optuna.storages.BaseStorage:
    # Absolute, because the lock is a symbolic link next to the file, whose target must not depend on where
    # the process runs.
    path = path.absolute()
    _make_parent_folder(path)
    return optuna.storages.JournalStorage(CrashSafeJournal(path))


def _make_parent_folder(path: Path) -> None:
    if path.name and path.name != ":memory:":
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
