"""Where a study's trials are kept: a file of its own, or a database that others write to as well."""

import os
from pathlib import Path
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from memtune.errors import StorageError

__all__ = ["open_storage"]

SQLITE = "sqlite:///"
POSTGRESQL = "postgresql"
JOURNAL = "journal://"
PATIENCE = 60
"""Seconds to wait for another writer's lock (sqlite) and for a connection (PostgreSQL)."""


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
            return _database(url, {"connect_args": {"timeout": PATIENCE}})
        if url.startswith(POSTGRESQL):
            return _database(url, {"pool_pre_ping": True, "connect_args": {"connect_timeout": PATIENCE}})
    except ImportError as error:
        raise StorageError(
            f"{_shown(url)} needs a database driver that is not installed; install 'psycopg[binary]'"
        ) from error
    except (OSError, ValueError, ArgumentError, SQLAlchemyError) as error:
        raise StorageError(f"the study's storage {_shown(url)} cannot be opened: {error}") from error
    raise StorageError(
        f"no kind of storage known in {_shown(url)!r}; "
        "use sqlite:///FILE, postgresql://USER@HOST/DATABASE or journal:///FILE"
    )


def _database(url: str, engine: dict[str, Any]) -> optuna.storages.BaseStorage:
    return optuna.storages.get_storage(optuna.storages.RDBStorage(url, engine_kwargs=engine))


def _journal(path: Path) -> optuna.storages.BaseStorage:
    # Absolute, because the lock is a symbolic link beside the file and would point nowhere.
    path = path.absolute()
    _make_folder(path)
    _cut_unfinished_line(path)
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


def _shown(url: str) -> str:
    """The URL without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _make_folder(path: Path) -> None:
    if path.name and path.name != ":memory:":
        path.absolute().parent.mkdir(parents=True, exist_ok=True)


def _cut_unfinished_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            file.seek(end - 1)
            if file.read(1) == b"\n":
                break
            end -= 1
        if end < size:
            file.truncate(end)
