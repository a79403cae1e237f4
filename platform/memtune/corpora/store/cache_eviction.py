"""Eviction from a node's cache of corpora: the least recently used ones, when the cache exceeds its limit.

Every process that opens a cached corpus holds a shared lock on a file next to it until it ends, however it
ends; only a corpus that can be locked exclusively is deleted. The modification time of the lock's file is
the time at which the corpus was last opened.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from memtune.errors import ConfigurationError

__all__ = ["acquire_shared_lock", "evict", "read_byte_limit"]

LIMIT_VARIABLE = "MEMTUNE_CACHE_BYTES"
DISK_DIVISOR = 4
"""Without MEMTUNE_CACHE_BYTES, the limit is the size of the disk divided by this."""

_shared_locks: dict[Path, int] = {}
"""File descriptors of the locks that this process holds."""


def read_byte_limit(cache: Path) -> int:
    """Size limit of the cached corpora in bytes: MEMTUNE_CACHE_BYTES, else a quarter of its disk.

    Raises ConfigurationError when the variable is not a number of bytes.
    """
    chosen = os.environ.get(LIMIT_VARIABLE)
    if not chosen:
        return shutil.disk_usage(cache).total // DISK_DIVISOR
    try:
        limit = int(chosen)
    except ValueError:
        limit = -1
    if limit < 0:
        raise ConfigurationError(f'{LIMIT_VARIABLE} is a whole number of bytes, got "{chosen}"')
    return limit


def acquire_shared_lock(folder: Path) -> None:
    """Keep a corpus's folder in the cache until this process ends; waits while it is being deleted."""
    if folder not in _shared_locks:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_lock_path(folder), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _shared_locks[folder] = descriptor
    os.utime(_lock_path(folder))


def evict(cache: Path, folder: Path, needed_bytes: int) -> None:
    """Delete unused corpora until `needed_bytes` fit within the limit, or none is left to delete."""
    corpora = folder.parent
    with FileLock(corpora / ".eviction.lock"):
        others = {path: _count_bytes(path) for path in corpora.iterdir() if path.is_dir() and path != folder}
        excess = sum(others.values()) + needed_bytes - read_byte_limit(cache)
        for path in sorted(others, key=_read_last_use):
            if excess <= 0:
                return
            with _try_exclusive_lock(path) as free:
                if free:
                    shutil.rmtree(path)
                    excess -= others[path]


@contextmanager
def _try_exclusive_lock(folder: Path) -> Iterator[bool]:
    """Whether no process uses a folder; none can start to during the block."""
    descriptor = os.open(_lock_path(folder), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.use")


def _read_last_use(folder: Path) -> float:
    return _lock_path(folder).stat().st_mtime if _lock_path(folder).exists() else 0.0


def _count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
