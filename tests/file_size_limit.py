"""Files that cannot grow beyond a size, as on a disk that fills."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["limit_file_size"]


@contextmanager
def limit_file_size(byte_count: int) -> Iterator[None]:
    """In the block, a write beyond this size fails with OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
