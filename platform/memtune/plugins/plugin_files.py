"""Plug-ins in the user's own files, which a study or a trial names."""

import sys
from collections.abc import Iterable
from pathlib import Path

from memtune.errors import PluginError
from memtune.plugins.plugin_registry import list_entries, register_module
from memtune.plugins.plugin_source import PluginSource, read_source_file
from memtune.plugins.source_modules import load_source, unload_source

__all__ = ["load_plugin_file", "load_plugin_files"]


def load_plugin_files(names: Iterable[str], folder: Path) -> tuple[PluginSource, ...]:
    """Load the files that a study or a trial lists, by paths relative to a folder.

    Raises the errors of `load_plugin_file`, and PluginError for an entry that two of the files define.
    """
    source_by_entry: dict[str, PluginSource] = {}
    sources = []
    for name in names:
        source = load_plugin_file(folder / name)
        sources.append(source)
        for entry in list_entries(source):
            other = source_by_entry.setdefault(entry, source)
            if other.digest != source.digest:
                raise PluginError(f"{other} and {source} both define the {entry}; rename one of the two")
    return tuple(sources)


def load_plugin_file(path: str | Path) -> PluginSource:
    """Execute a user's Python file, once per content, and register what it defines.

    Raises PluginError that names the file and the problem: not a small Python file, a syntax error, an
    exception, no definition, a name that is built in, or an import of another file of its folder, which the
    other machines of a cluster do not have.
    """
    path = Path(path)
    source = read_source_file(path)
    before = set(sys.modules)
    module = load_source(source)
    try:
        _refuse_neighbours(path, before)
    except PluginError:
        unload_source(source)  # else the next call would find it loaded, and import nothing
        raise
    if not register_module(module, source):
        raise PluginError(
            f"{path} defines no model family: no class derived from NeuralLanguageModelConfig or "
            'CountingConfig with family: Literal["..."] = "..."; memtune model new NAME writes an example'
        )
    return source


def _refuse_neighbours(path: Path, before: set[str]) -> None:
    folder = path.resolve().parent
    for name in sorted(set(sys.modules) - before):
        file = getattr(sys.modules[name], "__file__", None)
        if isinstance(file, str) and not file.startswith("<") and Path(file).resolve().parent == folder:
            del sys.modules[name]
            raise PluginError(
                f"{path} imports {Path(file).name} next to it, which workers do not have; keep a family in "
                "one file, or make a package with the entry point memtune.models"
            )
