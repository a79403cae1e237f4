"""Registries of plug-ins that forget what a test has loaded."""

from collections.abc import Iterator
from contextlib import contextmanager

from memtune.plugins import plugin_registry, source_modules
from memtune.values import forget_schemas


@contextmanager
def isolate_registries() -> Iterator[None]:
    """Unload at the end of the block the plug-ins that were loaded in it."""
    states = [
        (registry, {name: dict(held) for name, held in vars(registry).items() if isinstance(held, dict)})
        for registry in plugin_registry._registries
    ]
    before = set(source_modules.loaded_sources)
    try:
        yield
    finally:
        for registry, state in states:
            vars(registry).update(state)
        for digest in set(source_modules.loaded_sources) - before:
            source_modules.unload_source(source_modules.loaded_sources[digest])
        forget_schemas()
