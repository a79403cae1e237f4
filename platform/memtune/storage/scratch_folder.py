"""Temporary files and folders that do not outlive their process for long, however it ends.

A folder is locked while its process lives. The kernel releases the lock of a killed process, so the next
process that needs such a folder removes it, and never one that is in use. A file has no name, so the system
deletes it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from memtune.errors import StorageError, explain_system_error

PREFIX = "memtune-scratch-"
OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder for the duration of the block, below `parent` or the folder for temporary files.

    Removes those below `parent` whose process of this user was killed. Raises StorageError when no folder can
    be made.
    """
    try:
        # In the block: a folder for temporary files must be writable to be found.
        root = parent or Path(tempfile.gettempdir())
        _remove_stale_folders(root)
        folder, lock = _make_locked_folder(root)
    except OSError as error:
        place = parent or "the folder for temporary files (TMPDIR)"
        raise StorageError(f"cannot write to {place}: {explain_system_error(error)}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _make_locked_folder(root: Path) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        with suppress(FileNotFoundError):
            lock = os.open(folder, OPEN_FLAGS)
            with suppress(OSError):  # a file system without locks, where no folder is taken for stale either
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)  # another process removed it before it was locked


def _remove_stale_folders(root: Path) -> None:
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, another user's, or removed meanwhile
            lock = os.open(folder, OPEN_FLAGS)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


@contextmanager
def translate_spool_errors() -> Iterator[None]:
    """Raises StorageError if a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write to {tempfile.gettempdir()}: {error}; set TMPDIR to a folder with enough space"
        ) from None


def create_temporary_file() -> IO[bytes]:
    """Creates a file without a name, which the system deletes at the end of the process."""
    return tempfile.TemporaryFile()
