"""Plug-ins of installed packages: entry points in groups such as `memtune.models`."""

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from memtune.errors import PluginError
from memtune.plugins.plugin_source import MAX_SOURCE_BYTES, PluginSource, make_source, read_source_text
from memtune.plugins.source_modules import describe_error


@dataclass(frozen=True)
class InstalledPlugin:
    """An entry of an installed package."""

    entry: object
    source: PluginSource


@cache
def _read_entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; the metadata of all packages is read once per process."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        if point not in found.setdefault(point.name, []):
            found[point.name].append(point)
    return found


def list_names(group: str) -> list[str]:
    """The names of a group's entry points; imports no package."""
    return list(_read_entry_points(group))


def load(group: str, name: str) -> InstalledPlugin:
    """Import the package of an entry point.

    Raises PluginError for two packages with the same name, and for one that cannot be imported or is too
    large to be shipped.
    """
    points = _read_entry_points(group)[name]
    packages = sorted({_name_distribution(point) for point in points})
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
            f"{describe_error(error)}"
        ) from error
    return InstalledPlugin(entry, _read_source(point, packages[0]))


def find_module_folder(group: str, name: str) -> Path | None:
    """The folder of the module that has an entry point, where its other files are; None without one."""
    points = _read_entry_points(group).get(name)
    if not points:
        return None
    module = sys.modules.get(points[0].module)
    return None if module is None or module.__file__ is None else Path(module.__file__).parent


def _name_distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _read_source(point: EntryPoint, package: str) -> PluginSource:
    """All modules of the package that has the entry point, or its one module.

    A script whose name no module can have, such as `run-me.py`, cannot be imported and is left out.
    """
    top = point.module.partition(".")[0]
    file = sys.modules[top].__file__
    if file is None or not file.endswith(".py"):
        raise PluginError(f"{package} has no readable source of {top}, which a trial's identity needs")
    if Path(file).name != "__init__.py":
        return make_source(package, top, {f"{top}.py": read_source_text(Path(file))})
    folder = Path(file).parent
    relative_paths = {path: path.relative_to(folder.parent) for path in sorted(folder.rglob("*.py"))}
    paths = {path: name.as_posix() for path, name in relative_paths.items() if _is_module(name)}
    if sum(path.stat().st_size for path in paths) > MAX_SOURCE_BYTES:
        raise PluginError(
            f"{package} has more than {MAX_SOURCE_BYTES:,} bytes of source, and every trial carries it; put "
            "the plug-in into a package of its own"
        )
    texts = {name: read_source_text(path) for path, name in paths.items()}
    return make_source(package, point.module, texts)


def _is_module(path: Path) -> bool:
    return all(part.isidentifier() for part in path.with_suffix("").parts)
