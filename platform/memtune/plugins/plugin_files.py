"""Plug-ins in the user's own files, which a study or a trial names."""

import sys
from collections.abc import Iterable
from pathlib import Path

from memtune.errors import PluginError
from memtune.plugins.plugin_registry import register_module
from memtune.plugins.plugin_source import PluginSource, read_source_text
from memtune.plugins.source_modules import load_source

__all__ = ["load_plugin_file", "load_plugin_files"]


def load_plugin_files(names: Iterable[str], folder: Path) -> tuple[PluginSource, ...]:
    """Load the files that a study or a trial lists, by paths relative to a folder.

    Raises the errors of `load_plugin_file`.
    """
    return tuple(load_plugin_file(folder / name) for name in names)


def load_plugin_file(path: str | Path) -> PluginSource:
    """Execute a user's Python file, once per content, and register what it defines.

    Raises PluginError that names the file and the problem: not a small Python file, a syntax error, an
    exception, no definition, a name that is built in, or an import of another file of its folder, which the
    other machines of a cluster do not have.
    """
    path = Path(path)
    text = read_source_text(path)
    if not path.stem.isidentifier():
        raise PluginError(f"{path}: a file that is imported has letters, digits and underscores in its name")
    source = PluginSource(name=path.name, module=path.stem, files={path.name: text})
    before = set(sys.modules)
    module = load_source(source)
    _refuse_neighbours(path, before)
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
        if file and not file.startswith("<") and Path(file).resolve().parent == folder:
            del sys.modules[name]
            raise PluginError(
                f"{path} imports {Path(file).name} beside it, which workers do not have; keep a family in "
                "one file, or make a package with the entry point memtune.models"
            )
