"""Freed memory stays in the process, so that the next training step uses it again.

The gradients and logits of a step are blocks of many MB. By default glibc returns such blocks to the system,
and in the next step the kernel has to clear their pages again. In exchange, a process holds the memory of its
largest step until it returns it.
"""

import ctypes
from functools import cache

# Names and numbers of glibc's malloc.h; the value is the largest that mallopt's int holds.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
UNREACHED_BYTES = 2**31 - 1


@cache
def keep_freed_memory() -> bool:
    """Keep freed memory in this process from now on; returns False where the C library cannot do so.

    glibc before 2.35 refuses a threshold of mmap above 32 MiB. The trim threshold is then left alone, because
    setting it would also end glibc's own adaptation of the other one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(name, UNREACHED_BYTES) for name in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD))


def return_freed_memory() -> None:
    """Return what the process has freed to the system, for the measurements of the next trial."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
