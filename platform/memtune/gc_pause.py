"""A pause of the garbage collector: it shortens imports of large libraries, and deletes nothing meanwhile."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Iterator[None]:
    """Context that disables the garbage collector, and after an import excludes all live objects from it.

    Modules stay in memory, so collecting them is useless: it takes a quarter of the import time of torch and
    MLflow, and a quarter of a second in each later full collection. Without a new module nothing is excluded:
    in a process that runs many studies, each of them would stay.
    """
    was_enabled, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if len(sys.modules) > modules:
                gc.freeze()
            gc.enable()
