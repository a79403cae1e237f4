"""Imports of large libraries, in less time."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_one_go"]


@contextmanager
def in_one_go() -> Iterator[None]:
    """Import in the block while Python's garbage collector rests, and keep what was imported out of its way.

    What is imported stays, and is no garbage: to look through it again and again while it grows takes a
    quarter of the time that torch and MLflow take, and each time later on a quarter of a second.
    """
    rested = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not rested:
            gc.freeze()
            gc.enable()
