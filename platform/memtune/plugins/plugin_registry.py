"""The registry of one kind of plug-in: built-in entries, entries of loaded files, and those of packages.

Those of installed packages are entry points in groups such as `memtune.models`. Entry points are read at the
first unknown name, and a package is imported when its own name is asked for.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from memtune.errors import PluginError
from memtune.plugins import source_modules
from memtune.plugins.source_modules import PluginSource

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
        return len(self.built_in) + len(self._loaded)

    # By identity: entries change while a process runs, and `Annotated[Base, registry]` is hashed.
    __eq__, __hash__ = object.__eq__, object.__hash__

    def find(self, name: str) -> T | None:
        """The entry of a name, or None. Raises PluginError for a package that cannot be imported."""
        if name in self.built_in:
            return self.built_in[name]
        if name not in self._loaded and name in _read_entry_points(self.group):
            entry, source = _load_installed(self.group, name)
            self.add(name, self.adapt(name, entry, source), source)
        return self._loaded.get(name)

    def list_names(self) -> list[str]:
        """The names of all entries, those of installed packages included."""
        installed = [name for name in _read_entry_points(self.group) if name not in self.built_in]
        return list(dict.fromkeys([*self, *installed]))

    def get_source(self, name: str) -> PluginSource | None:
        """The source that defines an entry; None for a built-in one."""
        return self._source_by_name.get(name)

    def add(self, name: str, entry: T, source: PluginSource) -> None:
        """Add an entry whose name is not built in, or replace that of an earlier version of its source."""
        self._loaded[name] = entry
        self._source_by_name[name] = source
        source_modules.loaded_sources[source.digest] = source

    def find_entries(self, module: ModuleType) -> Mapping[str, object]:
        """The entries of this kind that a module defines, by name; none of a kind that packages alone add.

        Raises PluginError for an invalid one.
        """
        return {}

    @abstractmethod
    def adapt(self, name: str, entry: object, source: PluginSource) -> T:
        """What the registry holds for an entry of a source. Raises PluginError for an unsuitable object."""


@cache
def _read_entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; the metadata of all packages is read once per process."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        if point not in found.setdefault(point.name, []):
            found[point.name].append(point)
    return found


def _load_installed(group: str, name: str) -> tuple[object, PluginSource]:
    """Import the package of an entry point; returns the entry and its source.

    Raises PluginError for two packages with the same name, and for one that cannot be imported or is too
    large to be shipped.
    """
    points = _read_entry_points(group)[name]
    packages = sorted(
        {f"{point.dist.name} {point.dist.version}" if point.dist else point.value for point in points}
    )
    if len(packages) > 1:
        raise PluginError(f'{" and ".join(packages)} define {group} "{name}"; uninstall one of them')
    point = points[0]
    try:
        with redirect_stdout(sys.stderr):  # what it prints is not part of a command's output
            entry = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginError(
            f'{packages[0]} defines {group} "{name}" in {point.value}, which cannot be imported: '
            f"{source_modules.describe_error(error)}"
        ) from error
    return entry, _read_source(point, packages[0])


def _read_source(point: EntryPoint, package: str) -> PluginSource:
    """All modules of the package that has the entry point, or its one module.

    A script whose name no module can have, such as `run-me.py`, cannot be imported and is left out.
    """
    top = point.module.partition(".")[0]
    file = sys.modules[top].__file__
    if file is None or not file.endswith(".py"):
        raise PluginError(f"{package} has no readable source of {top}, which a trial's identity needs")
    if Path(file).name != "__init__.py":
        return source_modules.make_source(
            package, top, {f"{top}.py": source_modules.read_source_text(Path(file))}
        )
    folder = Path(file).parent
    relative_paths = {path: path.relative_to(folder.parent) for path in sorted(folder.rglob("*.py"))}
    paths = {
        path: name.as_posix()
        for path, name in relative_paths.items()
        if all(part.isidentifier() for part in name.with_suffix("").parts)
    }
    texts = {name: source_modules.read_source_text(path) for path, name in paths.items()}
    return source_modules.make_source(package, point.module, texts)


def register_module(module: ModuleType, source: PluginSource) -> list[str]:
    """Register every entry that the module of a source defines; returns noun and "name" of each.

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
    return [f'{registry.noun} "{name}"' for registry, name, _ in found]


def find_installed_file(registry: PluginRegistry[T], name: str, file: str) -> Path | None:
    """A file next to the module that an installed package has for an entry; None without one."""
    if name in registry.built_in or registry.find(name) is None:
        return None
    points = _read_entry_points(registry.group).get(name, [])
    modules = [sys.modules.get(point.module) for point in points[:1]]
    places = [Path(module.__file__).parent / file for module in modules if module and module.__file__]
    return next((place for place in places if place.is_file()), None)
