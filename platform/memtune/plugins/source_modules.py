"""The source of a plug-in: a value, its files as text with their digest, and the modules that it becomes.

A source of one file is the module `memtune_plugin_<digits>`, named by its digest; that of a package is a
package of this name, whose modules find each other by relative imports. A source is executed once per
process. This module is the only one that executes source, and `load_source` is called for files that the user
names, for assignments of the user's own driver, and after consent for anything from storage.
"""

import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from typing_extensions import override

from memtune.errors import PluginError, StorageError, suggest_nearest
from memtune.storage.digests import hash_bytes
from memtune.storage.local_files import open_regular_file
from memtune.values import Value, digest

MAX_SOURCE_BYTES = 2**20
"""Of all files of one plug-in; a family has some thousand lines at most, and every trial carries it."""
SHOWN_DIGITS = 12
MAX_NAME_CHARACTERS = 200
MAX_FILES = 200


class PluginSource(Value):
    """Python source that travels with a study, a trial and a registered model."""

    name: str = Field(max_length=MAX_NAME_CHARACTERS)
    """As the user knows it: the name of a file, or a distribution with its version."""
    module: str = Field(max_length=MAX_NAME_CHARACTERS)
    """The dotted module, among the files, that defines the plug-in's entries."""
    files: Mapping[str, str] = Field(min_length=1, max_length=MAX_FILES)
    """Texts by path: one module, or all modules of one package."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Refuse names that are not those of modules: who can write to a store can write this value."""
        if not all(part.isidentifier() for part in self.module.split(".")):
            raise ValueError(f"{self.module!r} is not the name of a Python module")
        for name in self.files:
            path = PurePosixPath(name)
            if path.suffix != ".py" or not all(part.isidentifier() for part in path.with_suffix("").parts):
                raise ValueError(f"{name!r} is not the path of a Python module")
        if sum(len(text.encode(errors="surrogatepass")) for text in self.files.values()) > MAX_SOURCE_BYTES:
            raise ValueError(
                f"the source of {self.name!r} has more than {MAX_SOURCE_BYTES:,} bytes, and every trial "
                "carries it; put the plug-in into a package of its own"
            )
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the source, hexadecimal; of one file that of its bytes, as `sha256sum` prints it."""
        if len(self.files) == 1:
            (text,) = self.files.values()
            return hash_bytes(text.encode(errors="surrogatepass"))
        return digest(self.module, dict(self.files))

    def __str__(self) -> str:
        """The name and the first digits of the digest, for messages."""
        return f"{self.name} (sha256 {self.digest[:SHOWN_DIGITS]})"


def make_source(name: str, module: str, files: Mapping[str, str]) -> PluginSource:
    """The source of a user's own file or package. Raises PluginError for names and sizes out of bounds."""
    try:
        return PluginSource(name=name, module=module, files=files)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        reasons = "; ".join(
            ": ".join([*map(str, each["loc"]), each["msg"].removeprefix("Value error, ")])
            for each in problems
        )
        raise PluginError(f"{name[:MAX_NAME_CHARACTERS]} cannot be used: {reasons}") from None


def read_source_file(path: Path) -> PluginSource:
    """The source of one Python file. Raises PluginError for a file that cannot be imported."""
    text = read_source_text(path)
    if not path.stem.isidentifier():
        raise PluginError(f"{path}: a file that is imported has letters, digits and underscores in its name")
    return make_source(path.name, path.stem, {path.name: text})


def read_source_text(path: Path) -> str:
    """The text of a Python file. Raises PluginError for anything but a small regular file of UTF-8."""
    if path.suffix != ".py":
        raise PluginError(f"{path} is not a Python file; its name ends in .py")
    if path.is_dir():
        raise PluginError(f"{path} is a folder; name the Python file that defines the family")
    try:
        with open_regular_file(path, path.resolve().parent) as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
    except FileNotFoundError:
        near = suggest_nearest(path.name, (other.name for other in path.parent.glob("*.py")))
        fix = near or "a study or a trial names it relative to itself"
        raise PluginError(f"no file {path}; {fix}") from None
    except (OSError, ValueError, StorageError) as error:  # a NUL in a path is a ValueError
        raise PluginError(f"cannot read {str(path)!r}: {error}") from None
    if len(data) > MAX_SOURCE_BYTES:
        raise PluginError(
            f"{path} has more than {MAX_SOURCE_BYTES:,} bytes, and every trial carries it; keep data in a "
            "corpus, not in the source"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PluginError(f"{path} is not UTF-8: {error}; save it as UTF-8") from None


MODULE_PREFIX = "memtune_plugin_"
MODULE_DIGITS = 16
SOURCE_FILE = re.compile(r"<[0-9a-f]{16}>/")
"""The start of what tracebacks show as the file of a module of a source."""
BYTE_ORDER_MARK = "\ufeff"
"""At the start of files of some editors; Python skips it in files, but not in a text."""
SOURCE_FIELD = "source"
"""The field of a configuration that holds the digest of the source that defines its class."""

loaded_sources: dict[str, PluginSource] = {}
"""The sources that this process has loaded, whose classes are in use, by digest."""


class _SourceImporter(MetaPathFinder, ExecutionLoader):
    """Finds and loads the modules of sources, and gives tracebacks their lines, also after a failure."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[PluginSource, str]] = {}
        """The source and the path of each module."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in self.files else None

    @override
    def get_source(self, fullname: str) -> str:
        source, path = self.files[fullname]
        return source.files[path].removeprefix(BYTE_ORDER_MARK)

    @override
    def get_filename(self, fullname: str) -> str:
        """What tracebacks show."""
        source, path = self.files[fullname]
        return f"<{source.digest[:MODULE_DIGITS]}>/{path}"

    @override
    def is_package(self, fullname: str) -> bool:
        return PurePosixPath(self.files[fullname][1]).name == "__init__.py"


_importer = _SourceImporter()


def load_source(source: PluginSource) -> ModuleType:
    """Execute a source, once per process, and return the module that defines its entries.

    Raises PluginError that names the file, the line and the problem; nothing of it stays loaded then.
    """
    root = _name_root(source)
    entry = ".".join([root, *source.module.split(".")[1:]])
    if _importer not in sys.meta_path:
        sys.meta_path.append(_importer)
    for path in source.files:
        parts = PurePosixPath(path).with_suffix("").parts
        names = parts[1:-1] if parts[-1] == "__init__" else parts[1:]
        _importer.files[".".join([root, *names])] = source, path
    try:
        with redirect_stdout(sys.stderr):  # what it prints is not part of a command's output
            module: object = import_module(entry)
    except BaseException as error:
        _forget(root)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise PluginError(f"{source} cannot be loaded: {describe_error(error)}") from error
    if not isinstance(module, ModuleType):
        _forget(root)
        raise PluginError(f"{source} cannot be loaded: it takes itself out of sys.modules")
    loaded_sources[source.digest] = source
    return module


def unload_source(source: PluginSource) -> None:
    """Forget a source and its modules, so that it is executed again when it is loaded again."""
    loaded_sources.pop(source.digest, None)
    _forget(_name_root(source))


def list_sources(configuration: Mapping[str, Any]) -> tuple[PluginSource, ...]:
    """The sources that a nested configuration, as plain values, needs and that this process has loaded."""
    found: dict[str, PluginSource] = {}
    for name, value in configuration.items():
        if isinstance(value, Mapping):
            found |= {source.digest: source for source in list_sources(value)}
        elif name == SOURCE_FIELD and isinstance(value, str) and value in loaded_sources:
            found[value] = loaded_sources[value]
    return tuple(found.values())


def name_sources(configuration: Mapping[str, Any], complete: Mapping[str, Any]) -> dict[str, Any]:
    """A nested configuration with the digests that the same one has when it is `complete`.

    A name that stands for an entry with a source becomes a table of both; with fields, the complete table.
    """
    named = dict(configuration)
    for name, value in complete.items():
        own = named.get(name)
        if isinstance(value, Mapping) and isinstance(own, Mapping):
            digest = {SOURCE_FIELD: value[SOURCE_FIELD]} if SOURCE_FIELD in value else {}
            named[name] = name_sources(own, value) | digest
        elif isinstance(value, Mapping) and own is not None and SOURCE_FIELD in value:
            fields = {key: each for key, each in value.items() if key == SOURCE_FIELD or each == own}
            named[name] = fields if own in fields.values() else dict(value)
    return named


def _name_root(source: PluginSource) -> str:
    return f"{MODULE_PREFIX}{source.digest[:MODULE_DIGITS]}"


def _forget(root: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == root]:
        del sys.modules[name]


def describe_error(error: BaseException) -> str:
    """An error of a plug-in, with the last of its lines that is in the source of one."""
    if isinstance(error, SyntaxError) and error.filename and SOURCE_FILE.match(error.filename):
        return f"line {error.lineno}: {error.msg}"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if SOURCE_FILE.match(frame.filename)
    ]
    if not frames:
        return _format_error(error)
    file = frames[-1].filename.partition("/")[2]
    return f"{file}, line {frames[-1].lineno}: {_format_error(error)}"


def _format_error(error: BaseException) -> str:
    """The class and the message; the class alone where a plug-in's own class cannot be printed."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
