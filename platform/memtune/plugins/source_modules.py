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
            raise ValueError(f"the source of {self.name!r} has more than {MAX_SOURCE_BYTES:,} bytes")
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

_loaded: dict[str, PluginSource] = {}
"""The sources that this process has loaded, by digest."""


class _SourceLoader(ExecutionLoader):
    """The modules of one source."""

    def __init__(self, source: PluginSource) -> None:
        self.source = source
        self.root = f"{MODULE_PREFIX}{source.digest[:MODULE_DIGITS]}"
        self._path_by_module: dict[str, str] = {}
        for path in source.files:
            parts = PurePosixPath(path).with_suffix("").parts
            names = parts[1:-1] if parts[-1] == "__init__" else parts[1:]
            self._path_by_module[".".join([self.root, *names])] = path

    @property
    def entry(self) -> str:
        """The module that defines the plug-in."""
        return ".".join([self.root, *self.source.module.split(".")[1:]])

    def find_path(self, name: str) -> str | None:
        """The path of a module among the files."""
        return self._path_by_module.get(name)

    @override
    def get_source(self, fullname: str) -> str:
        return self.source.files[self._path_by_module[fullname]].removeprefix(BYTE_ORDER_MARK)

    @override
    def get_filename(self, fullname: str) -> str:
        """What tracebacks show."""
        return f"<{self.source.digest[:MODULE_DIGITS]}>/{self._path_by_module[fullname]}"

    @override
    def is_package(self, fullname: str) -> bool:
        return PurePosixPath(self._path_by_module[fullname]).name == "__init__.py"


class _SourceFinder(MetaPathFinder):
    """Finds the modules of the sources that are being loaded or have been."""

    def __init__(self) -> None:
        self.loaders: dict[str, _SourceLoader] = {}

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader = self.loaders.get(fullname.partition(".")[0])
        if loader is None or loader.find_path(fullname) is None:
            return None
        return spec_from_loader(fullname, loader)


_finder = _SourceFinder()


def load_source(source: PluginSource) -> ModuleType:
    """Execute a source, once per process, and return the module that defines its entries.

    Raises PluginError that names the file, the line and the problem; nothing of it stays loaded then.
    """
    loader = _SourceLoader(source)
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
    if loader.root not in _finder.loaders:
        _finder.loaders[loader.root] = loader
        try:
            with redirect_stdout(sys.stderr):  # what it prints is not part of a command's output
                import_module(loader.entry)
        except BaseException as error:
            _forget(loader)
            if isinstance(error, KeyboardInterrupt):
                raise
            raise PluginError(f"{source} cannot be loaded: {describe_error(error)}") from error
    module = sys.modules.get(loader.entry)
    if not isinstance(module, ModuleType):
        _forget(loader)
        raise PluginError(f"{source} cannot be loaded: it takes itself out of sys.modules")
    remember_source(source)
    return module


def remember_source(source: PluginSource) -> None:
    """Note that the classes of a source are in use; configurations find it by its digest."""
    _loaded[source.digest] = source


def list_loaded_digests() -> frozenset[str]:
    """The digests of the sources that this process has loaded."""
    return frozenset(_loaded)


def unload_source(source: PluginSource) -> None:
    """Forget a source and its modules, so that it is executed again when it is loaded again."""
    _loaded.pop(source.digest, None)
    _forget(_SourceLoader(source))


def list_sources(configuration: Mapping[str, Any]) -> tuple[PluginSource, ...]:
    """The sources that a nested configuration, as plain values, needs and that this process has loaded."""
    found: dict[str, PluginSource] = {}
    for name, value in configuration.items():
        if isinstance(value, Mapping):
            found |= {source.digest: source for source in list_sources(value)}
        elif name == SOURCE_FIELD and isinstance(value, str) and value in _loaded:
            found[value] = _loaded[value]
    return tuple(found.values())


def _forget(loader: _SourceLoader) -> None:
    _finder.loaders.pop(loader.root, None)
    for name in [name for name in sys.modules if name.partition(".")[0] == loader.root]:
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
