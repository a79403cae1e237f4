"""Where a study's trials are kept: a file of its own, or a database that others write to as well."""

import os
import re
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from memtune.errors import StorageError
from memtune.search.patience import why

__all__ = ["open_storage", "shown"]

SQLITE = "sqlite:///"
POSTGRESQL = "postgresql"
JOURNAL = "journal://"
LOCK_SECONDS = 60
"""Seconds to wait for another writer's lock on a sqlite file."""
TABLES_SECONDS = 30.0
"""Seconds that making a new database's tables takes at most, on a machine with much else to do."""
TABLES_PAUSE = 0.2
MADE_MEANWHILE = re.compile("already exists|alembic_version|version_info|duplicate key")
"""What a database says to who makes tables that another is making."""


def open_storage(url: str) -> optuna.storages.BaseStorage:
    """The storage at sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:///FILE, made if it is new.

    A journal is one line a change, made for network file systems where sqlite's locks do not work; a line
    that a killed writer left unfinished is cut off. StorageError when it cannot be opened.
    """
    try:
        if url.startswith(JOURNAL):
            return _journal(Path(url.removeprefix(JOURNAL)))
        if url.startswith(SQLITE):
            _make_folder(Path(url.removeprefix(SQLITE)))
            return _database(url, {"connect_args": {"timeout": LOCK_SECONDS}})
        if url.startswith(POSTGRESQL):
            return _postgresql(make_url(url).set(drivername="postgresql+psycopg"))
    except ImportError as error:
        raise StorageError(
            f"{shown(url)} needs a database driver that is not installed; install 'psycopg[binary]'"
        ) from error
    except (OSError, ValueError, ArgumentError, SQLAlchemyError) as error:
        raise StorageError(f"the study's storage {shown(url)} cannot be opened: {why(error)}") from error
    raise StorageError(
        f"no kind of storage known in {shown(url)!r}; "
        "use sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:///FILE"
    )


def _database(url: str, engine: dict[str, Any]) -> optuna.storages.BaseStorage:
    until = time.monotonic() + TABLES_SECONDS
    while True:
        try:
            database = optuna.storages.RDBStorage(url, engine_kwargs=engine)
        except SQLAlchemyError as error:
            # Of drivers that make the tables at once all but one fail; when that one is done, they are there.
            if not MADE_MEANWHILE.search(str(error)) or time.monotonic() >= until:
                raise
            time.sleep(TABLES_PAUSE)
        else:
            weakref.finalize(database, database.engine.dispose)
            return optuna.storages.get_storage(database)


def _postgresql(url: URL) -> optuna.storages.BaseStorage:
    from memtune.search.postgresql import connecting

    options = {"pool_pre_ping": True, "creator": connecting(url)}
    return _database(url.render_as_string(hide_password=False), options)


def _journal(path: Path) -> optuna.storages.BaseStorage:
    # Absolute, because the lock is a symbolic link beside the file and would point nowhere.
    path = path.absolute()
    _make_folder(path)
    return optuna.storages.JournalStorage(WholeLines(path))


def shown(url: str) -> str:
    """The URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _make_folder(path: Path) -> None:
    if path.name and path.name != ":memory:":
        path.absolute().parent.mkdir(parents=True, exist_ok=True)


class JournalLock(JournalFileSymlinkLock):
    """The journal's lock, which others take from a process that was stopped with it for too long.

    What that process appends when it goes on is a whole line all the same.
    """

    def release(self) -> None:
        """Give the lock back, if it was not taken."""
        with suppress(RuntimeError):
            super().release()


class WholeLines(JournalFileBackend):
    """A journal without torn lines: what a killed writer or a full disk left of one is cut off."""

    def __init__(self, path: Path) -> None:
        """Opens the journal, made if it is new."""
        self._journal, self._own_lock = path, JournalLock(str(path))
        super().__init__(str(path), self._own_lock)
        self._cut_unfinished_line()
        self._torn = False

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds lines, whole or not at all."""
        if self._torn:
            self._cut_unfinished_line()
        self._torn = True
        super().append_logs(logs)
        self._torn = False

    def _cut_unfinished_line(self) -> None:
        self._own_lock.acquire()
        try:
            with self._journal.open("r+b") as file:
                size = end = file.seek(0, os.SEEK_END)
                while end > 0 and not _ends_line(file, end):
                    end -= 1
                if end < size:
                    file.truncate(end)
        finally:
            self._own_lock.release()


def _ends_line(file: BinaryIO, position: int) -> bool:
    file.seek(position - 1)
    return file.read(1) == b"\n"
