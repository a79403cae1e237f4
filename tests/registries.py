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
    digests = source_modules.list_loaded_digests()
    try:
        yield
    finally:
        for registry, state in states:
            vars(registry).update(state)
        for digest in source_modules.list_loaded_digests() - digests:
            source_modules.unload_source(source_modules._loaded[digest])
        forget_schemas()
