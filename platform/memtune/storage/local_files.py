"""Local files: those that another user may have written, and temporary ones.

Only regular files below one root are opened. A device such as /dev/zero never ends and a FIFO without a
writer never answers, so a path is opened without blocking and the open file is examined before it is read.

Temporary files and folders do not outlive their process for long, however it ends. A folder is locked while
its process lives. The kernel releases the lock of a killed process, so the next process that needs such a
folder removes it, and never one that is in use. A file has no name, so the system deletes it.
"""

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from filelock import FileLock, Timeout

from memtune.errors import StorageError, explain_system_error

log = logging.getLogger(__name__)
PREFIX = "memtune-scratch-"
OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check_inside(path: Path, root: Path) -> Path:
    """The path with every symbolic link resolved.

    Raises StorageError when it is outside `root`, and OSError when it does not exist.
    """
    try:
        resolved = path.resolve(strict=True)
    except RuntimeError:  # Python before 3.13; later an OSError
        raise StorageError(f"{path} is a symbolic link to itself; delete it") from None
    if not resolved.is_relative_to(root.resolve()):
        raise StorageError(f"{path} is a symbolic link out of {root}; copy the file into the folder")
    return resolved


def open_regular_file(path: Path, root: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises StorageError for a path outside `root` and for a folder, device, FIFO or socket, and OSError when
    the file does not exist or cannot be read.
    """
    # O_NONBLOCK: opening a FIFO returns at once. O_NOFOLLOW: the resolved path has no link left to follow,
    # so one that appears here was put in place after the check.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(check_inside(path, root), flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path} is not a regular file; replace it by a copy of its content")
    return os.fdopen(descriptor, "rb")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that a user names, and the folders above it; where that fails, an older one stays.

    A device such as /dev/stdout is written directly. Raises StorageError where the file cannot be written.
    """
    is_device = path.exists() and not path.is_file()
    place = path if is_device else path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        if not is_device:
            place.replace(path)
    except OSError as error:
        if not is_device:
            with suppress(OSError):  # the first error says more
                place.unlink()
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}; choose another place"
        ) from None


@contextmanager
def open_scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder for the duration of the block, below `parent` or the folder for temporary files.

    Removes those below `parent` whose process of this user was killed. Raises StorageError when no folder can
    be made.
    """
    remove = partial(shutil.rmtree, ignore_errors=True)
    try:
        # In the block: a folder for temporary files must be writable to be found.
        folder, lock = make_locked_folder(parent or Path(tempfile.gettempdir()), PREFIX, remove)
    except OSError as error:
        place = parent or "the folder for temporary files (TMPDIR)"
        raise StorageError(f"cannot write to {place}: {explain_system_error(error)}") from error
    try:
        yield folder
    finally:
        remove(folder)
        os.close(lock)


def make_locked_folder(root: Path, prefix: str, clean_up: Callable[[Path], None]) -> tuple[Path, int]:
    """A new folder of mode 0700 in `root`, and the descriptor that holds its lock.

    First cleans up the folders with this prefix whose process of this user was killed. Raises OSError.
    """
    for stale in root.glob(f"{prefix}*"):
        with suppress(OSError):  # in use, another user's, removed meanwhile, or a file
            lock = os.open(stale, OPEN_FLAGS)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    clean_up(stale)
            finally:
                os.close(lock)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        with suppress(FileNotFoundError):
            lock = os.open(folder, OPEN_FLAGS)
            with suppress(OSError):  # a file system without locks, where no folder is taken for stale either
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)  # another process removed it before it was locked


@contextmanager
def hold_lock(path: Path, user: str) -> Iterator[None]:
    """In the block, no other process holds the lock in a file; another one waits, and says for whom.

    `user` says what holds it meanwhile, as in "another import of ptb". Raises StorageError for a link,
    because locking truncates the file that it opens, and OSError.
    """
    if path.is_symlink():
        raise StorageError(f"the lock {path} is a symbolic link; delete it")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.warning("waiting for the end of %s", user)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


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
