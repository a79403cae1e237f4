"""The source of a plug-in as a value: its files as text, and the digest that identifies it."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Self

from pydantic import Field, ValidationError, model_validator

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
