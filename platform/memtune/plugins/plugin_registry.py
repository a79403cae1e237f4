"""The registry of one kind of plug-in: built-in entries, entries of loaded files, and those of packages.

Entry points are read at the first unknown name, and a package is imported when its own name is asked for.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from memtune.errors import PluginError
from memtune.plugins import installed_plugins
from memtune.plugins.plugin_source import PluginSource
from memtune.plugins.source_modules import forget_sources, list_loaded_digests

T = TypeVar("T")

_registries: "list[PluginRegistry[object]]" = []
"""Every registry of this process, in the order in which their modules were imported."""


class PluginRegistry(Mapping[str, T], ABC, Generic[T]):
    """Entries by name. As a mapping it holds the built-in entries and those that have been loaded.

    `noun` names an entry in messages. `group` is the group of entry points that packages use.
    """

    def __init__(self, noun: str, group: str, built_in: Mapping[str, T]) -> None:
        self.noun, self.group = noun, group
        self.built_in = dict(built_in)
        self._loaded: dict[str, T] = {}
        self._source_by_name: dict[str, PluginSource] = {}
        _registries.append(self)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> T:
        """The entry of a name; imports the package that has it. Raises KeyError and PluginError."""
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        """Names of built-in entries, then of loaded ones; packages that nobody asked for stay unimported."""
        return iter([*self.built_in, *self._loaded])

    def __len__(self) -> int:
        """The number of built-in and loaded entries."""
        return len(self.built_in) + len(self._loaded)

    def __eq__(self, other: object) -> bool:
        """A registry is equal to itself only: its entries change while a process runs."""
        return self is other

    def __hash__(self) -> int:
        """By identity: types such as `Annotated[Base, registry]` are hashed."""
        return id(self)

    def find(self, name: str) -> T | None:
        """The entry of a name, or None. Raises PluginError for a package that cannot be imported."""
        if name in self.built_in:
            return self.built_in[name]
        if name not in self._loaded and name in installed_plugins.list_names(self.group):
            installed = installed_plugins.load(self.group, name)
            self.add(name, self.adapt(name, installed.entry, installed.source), installed.source)
        return self._loaded.get(name)

    def list_names(self) -> list[str]:
        """The names of all entries, those of installed packages included."""
        installed = installed_plugins.list_names(self.group)
        return list(dict.fromkeys([*self, *(name for name in installed if name not in self.built_in)]))

    def get_source(self, name: str) -> PluginSource | None:
        """The source that defines an entry; None for a built-in one."""
        return self._source_by_name.get(name)

    def add(self, name: str, entry: T, source: PluginSource) -> None:
        """Add an entry, or replace that of an earlier version of its source.

        Raises PluginError for the name of a built-in entry.
        """
        if name in self.built_in:
            raise PluginError(f'{source} defines the {self.noun} "{name}", which is built in; rename it')
        self._loaded[name] = entry
        self._source_by_name[name] = source

    @abstractmethod
    def find_entries(self, module: ModuleType) -> Mapping[str, object]:
        """The entries of this kind that a module defines, by name. Raises PluginError for an invalid one."""

    @abstractmethod
    def adapt(self, name: str, entry: object, source: PluginSource) -> T:
        """What the registry holds for an entry of a source. Raises PluginError for an unsuitable object."""

    def save_state(self) -> tuple[dict[str, T], dict[str, PluginSource]]:
        """The loaded entries, for `restore_state`."""
        return dict(self._loaded), dict(self._source_by_name)

    def restore_state(self, state: tuple[dict[str, T], dict[str, PluginSource]]) -> None:
        """Forget entries that were loaded after `save_state`."""
        self._loaded, self._source_by_name = dict(state[0]), dict(state[1])


def register_module(module: ModuleType, source: PluginSource) -> list[str]:
    """Register every entry that the module of a source defines; returns "noun name" of each.

    Raises PluginError for a name that is built in and for an invalid entry; then nothing is registered.
    """
    try:
        entries = [(registry, registry.find_entries(module)) for registry in _registries]
    except PluginError as error:
        raise PluginError(f"{source}: {error}") from None
    found = [
        (registry, name, registry.adapt(name, entry, source))
        for registry, by_name in entries
        for name, entry in by_name.items()
    ]
    for registry, name, _ in found:
        if name in registry.built_in:
            raise PluginError(f'{source} defines the {registry.noun} "{name}", which is built in; rename it')
    for registry, name, entry in found:
        registry.add(name, entry, source)
    return [f"{registry.noun} {name}" for registry, name, _ in found]


def list_entries(source: PluginSource) -> list[str]:
    """ "noun name" of each entry whose newest definition is that of a source."""
    return [
        f'{registry.noun} "{name}"'
        for registry in _registries
        for name in registry
        if registry.get_source(name) == source
    ]


def find_installed_file(registry: PluginRegistry[T], name: str, file: str) -> Path | None:
    """A file next to the module that an installed package has for an entry; None without one."""
    if name in registry.built_in or registry.find(name) is None:
        return None
    folder = installed_plugins.find_module_folder(registry.group, name)
    return folder / file if folder and (folder / file).is_file() else None


@contextmanager
def isolate_registries() -> Iterator[None]:
    """Unload at the end of the block the plug-ins that were loaded in it; for tests."""
    states, digests = [(registry, registry.save_state()) for registry in _registries], list_loaded_digests()
    try:
        yield
    finally:
        for registry, state in states:
            registry.restore_state(state)
        forget_sources(keep=digests)
