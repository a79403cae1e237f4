"""Safe opening of local files that another user may have written: only regular files below one root.

A device such as /dev/zero never ends and a FIFO without a writer never answers, so a path is opened without
blocking and the open file is examined before anything is read from it.
"""

import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from memtune.errors import StorageError

CHUNK_BYTES = 2**20


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


def read_at_most(stream: Any, limit: int) -> bytes:
    """Up to `limit` bytes of a binary stream.

    It reads in chunks, because `read(limit)` allocates the limit first, however short the file is.
    """
    chunks = []
    while limit > 0 and (data := stream.read(min(limit, CHUNK_BYTES))):
        chunks.append(data)
        limit -= len(data)
    return b"".join(chunks)
