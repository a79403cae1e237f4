"""A registry of objects or functions that only packages extend, by their entry points."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from typing_extensions import override

from memtune.errors import PluginError
from memtune.plugins.plugin_registry import PluginRegistry
from memtune.plugins.plugin_source import PluginSource
from memtune.plugins.source_modules import remember_source

T = TypeVar("T")


class ObjectRegistry(PluginRegistry[T], Generic[T]):
    """Entries that no configuration class describes, such as text formats; `is_valid` tells one."""

    def __init__(
        self, noun: str, group: str, is_valid: Callable[[Any], bool], built_in: Mapping[str, T]
    ) -> None:
        super().__init__(noun, group, built_in)
        self._is_valid = is_valid

    @override
    def find_entries(self, module: ModuleType) -> Mapping[str, object]:
        """None: a file of a study defines families, output layers, tasks and rules."""
        return {}

    @override
    def adapt(self, name: str, entry: object, source: PluginSource) -> T:
        """The object itself. Raises PluginError for one of another kind."""
        if not self._is_valid(entry):
            raise PluginError(f'{source} has {entry!r} as "{name}", which is no {self.noun}')
        remember_source(source)
        return cast(T, entry)
