"""Sources as modules of this process: executed once, under a name that holds their digest.

A source of one file is the module `memtune_plugin_<digits>`; that of a package is a package of this name,
whose modules find each other by relative imports. This module is the only one that executes source, and
`load_source` is called for files that the user names, for assignments of the user's own driver, and after
consent for anything from storage.
"""

import re
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

from typing_extensions import override

from memtune.errors import PluginError
from memtune.plugins.plugin_source import PluginSource

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


class _SourceLoader(InspectLoader):
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

    def get_source(self, fullname: str) -> str:
        return self.source.files[self._path_by_module[fullname]]

    def get_filename(self, name: str) -> str:
        """What tracebacks show."""
        return f"<{self.source.digest[:MODULE_DIGITS]}>/{self._path_by_module[name]}"

    @override
    def is_package(self, fullname: str) -> bool:
        return PurePosixPath(self._path_by_module[fullname]).name == "__init__.py"

    @override
    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__file__ = self.get_filename(name)
        text = self.get_source(name).removeprefix(BYTE_ORDER_MARK)
        code = compile(text, self.get_filename(name), "exec", dont_inherit=True)
        exec(code, module.__dict__)


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


def forget_sources(keep: Collection[str]) -> None:
    """Unload all sources but those of the given digests."""
    for source in [source for digest, source in _loaded.items() if digest not in keep]:
        unload_source(source)


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
