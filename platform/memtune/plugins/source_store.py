"""Sources in storage, by digest, and the consent without which none of them is executed."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from memtune.arguments import check_type
from memtune.errors import MissingSourceError, PluginError
from memtune.plugins import source_modules
from memtune.plugins.plugin_registry import register_module
from memtune.plugins.source_modules import PluginSource
from memtune.storage.folder import Folder


def load_plugin_files(names: Iterable[str], folder: Path) -> tuple[PluginSource, ...]:
    """Load the files that a study or a trial lists, by paths relative to a folder.

    Raises the errors of `load_plugin_file`, and PluginError for an entry that two of the files define.
    """
    source_by_entry: dict[str, PluginSource] = {}
    sources = []
    for name in names:
        source, entries = _load(folder / name)
        sources.append(source)
        for entry in entries:
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
    return _load(Path(path))[0]


def _load(path: Path) -> tuple[PluginSource, list[str]]:
    """The source of a file, and noun and "name" of each entry that it defines."""
    source = source_modules.read_source_file(path)
    before = set(sys.modules)
    module = source_modules.load_source(source)
    try:
        _refuse_neighbours(path, before)
    except PluginError:
        source_modules.unload_source(source)  # else the next call would find it loaded, and import nothing
        raise
    entries = register_module(module, source)
    if not entries:
        raise PluginError(
            f"{path} defines no model family: no class derived from NeuralLanguageModelConfig or "
            'CountingConfig with family: Literal["..."] = "..."; memtune model new NAME writes an example'
        )
    return source, entries


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


SOURCES_FOLDER = "sources"
"""The folder, below that of a study, with the sources of its plug-ins."""
MAX_SOURCES = 20
"""Of one configuration: a model, its output layer and a task have one each."""

T = TypeVar("T")


def store_sources(study_folder: str, sources: Iterable[PluginSource]) -> None:
    """Store sources, each in a file named after its digest; one that is there already is written again."""
    folder = Folder.open(f"{study_folder}/{SOURCES_FOLDER}")
    for source in sources:
        folder.write_json(f"{source.digest}.json", source.model_dump(mode="json"))


def read_source(study_folder: str, digest: str) -> PluginSource | None:
    """The stored source of a digest, or None. Raises PluginError for a file of another content."""
    folder = Folder.open(f"{study_folder}/{SOURCES_FOLDER}")
    document = folder.read_json(f"{digest}.json")
    if document is None:
        return None
    where = f"{folder}/{digest}.json"
    try:
        source = PluginSource.model_validate(document)
    except ValidationError as error:
        raise PluginError(f"{where} is not a source: {error.errors()[0]['msg']}") from None
    if source.digest != digest:
        raise PluginError(f"{where} has digest {source.digest}; it was altered")
    return source


def load_sources(sources: Iterable[PluginSource]) -> None:
    """Execute sources that the user trusts, and register what they define. Raises PluginError.

    A source that this process has already loaded, perhaps as an installed package, is not executed again.
    """
    for source in [source for source in sources if source.digest not in source_modules.loaded_sources]:
        register_module(source_modules.load_source(source), source)


def run_with_sources(
    action: Callable[[], T], find_source: Callable[[str], PluginSource | None], where: str, trust_code: bool
) -> T:
    """The result of `action`, with the sources that it lacks loaded from storage, if the user trusts them.

    Raises PluginError that names the file and its digest where the user has not consented, and where storage
    lacks a source.
    """
    check_type("trust_code", trust_code, bool, "True or False")  # "no" is no consent
    for _ in range(MAX_SOURCES):
        try:
            return action()
        except MissingSourceError as error:
            source = find_source(error.digest)
            if source is None or source.digest != error.digest:
                raise PluginError(f"{where}: {error}") from None
            if not trust_code:
                raise PluginError(
                    f'{where} has the {error.noun} "{error.name}" of {source.name}, sha256 {source.digest}, '
                    "which was stored with it. Opening it executes that file with all your rights on this "
                    "machine. If you know the file and trust who wrote it, repeat with --trust-code "
                    "(trust_code=True in Python)"
                ) from None
            load_sources([source])
    raise PluginError(f"{where} needs more than {MAX_SOURCES} sources")
