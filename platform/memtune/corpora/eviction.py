"""Room in a node's cache of corpora: the least recently used ones make way when it has grown too large.

Every process that opens a corpus of the cache holds a shared lock on a file beside it for as long as it
lives, whatever becomes of it; only what can be locked alone is removed. The lock's file also tells by its
time when the corpus was last opened.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from memtune.errors import ConfigurationError

__all__ = ["byte_limit", "hold", "make_room"]

VARIABLE = "MEMTUNE_CACHE_BYTES"
SHARE = 4
"""Without a limit, one part in so many of the disk that the cache is on."""

_held: dict[Path, int] = {}
"""Descriptors of the locks that this process holds."""


def byte_limit(cache: Path) -> int:
    """Bytes that corpora may take in the cache: MEMTUNE_CACHE_BYTES, else a quarter of its disk.

    Raises ConfigurationError for a variable that is no number of bytes.
    """
    chosen = os.environ.get(VARIABLE)
    if not chosen:
        return shutil.disk_usage(cache).total // SHARE
    try:
        limit = int(chosen)
    except ValueError:
        limit = -1
    if limit < 0:
        raise ConfigurationError(f'{VARIABLE} is a whole number of bytes, got "{chosen}"')
    return limit


def hold(folder: Path) -> None:
    """Keep a corpus's folder in the cache for as long as this process lives; waits while it is removed."""
    if folder not in _held:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_lock(folder), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _held[folder] = descriptor
    os.utime(_lock(folder))


def make_room(cache: Path, folder: Path, needed: int) -> None:
    """Remove corpora that no process uses until `needed` bytes fit beside those left, or none can go."""
    corpora = folder.parent
    with FileLock(corpora / ".eviction.lock"):
        others = {path: _bytes(path) for path in corpora.iterdir() if path.is_dir() and path != folder}
        excess = sum(others.values()) + needed - byte_limit(cache)
        for path in sorted(others, key=_last_use):
            if excess <= 0:
                return
            with _alone(path) as free:
                if free:
                    shutil.rmtree(path)
                    excess -= others[path]


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no process uses a folder, nor can begin to during the block."""
    descriptor = os.open(_lock(folder), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _lock(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.use")


def _last_use(folder: Path) -> float:
    return _lock(folder).stat().st_mtime if _lock(folder).exists() else 0.0


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
