"""The location of a source: a local path, a pattern such as `books/*.txt`, or a URI of pyarrow.fs."""

import glob
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from memtune.errors import CorpusError
from memtune.storage.folder import open_filesystem
from memtune.storage.uris import redact_uri, refuse_credentials

Location = Path | str
"""A local path, or a URI as text."""

_WILDCARDS = "*?["


def parse_location(text: str | Path) -> Location:
    """A URI as it is, everything else as a path; a URI of a local file becomes its path."""
    if isinstance(text, Path) or "://" not in text:
        return Path(text)
    return Path(unquote(urlsplit(text).path)) if text.startswith("file://") else text


def is_pattern(location: Location) -> bool:
    """Whether a location that does not exist names files by a pattern."""
    return any(sign in str(location) for sign in _WILDCARDS)


def find_local_files(pattern: Path) -> list[Path]:
    """The files that a pattern names, sorted; `**` stands for any folders. Raises CorpusError for none."""
    found = sorted(Path(name) for name in glob.glob(str(pattern), recursive=True))
    files = [path for path in found if not path.is_dir()]
    if not files:
        raise CorpusError(f"no file matches {pattern}; in a shell, write the pattern in quotes")
    return files


def list_folder_files(folder: Path) -> list[Path]:
    """Every file below a folder, sorted; links to folders are not followed.

    Raises CorpusError for an unreadable subfolder, because a corpus without its files would differ silently.
    """
    files: list[Path] = []
    folders = [folder]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError as error:
            raise CorpusError(
                f"cannot read the folder {error.filename}: {error.strerror}; change its permissions, or move "
                f"it out of {folder}"
            ) from None
        folders += [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        files += [Path(entry.path) for entry in entries if not entry.is_dir()]
    return sorted(files)


class RemoteFile:
    """A file, folder or pattern at a URI; `name` is the URI without credentials."""

    def __init__(self, uri: str) -> None:
        """Raises CorpusError for a URI that names no file system, and ConfigurationError for credentials."""
        refuse_credentials("the source", uri)
        self.uri, self.name = uri, redact_uri(uri)
        if uri.startswith(("http://", "https://", "ftp://")):
            raise CorpusError(
                f"{self.name} is a web address; download it, or pipe it in: curl -sSfL ADDRESS | memtune "
                "corpus import NAME --train - --split 80,10,10"
            )
        try:
            self._files, self._path = open_filesystem(uri)
            self._info = self._files.get_file_info(self._path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self._explain("open", error) from None

    @property
    def is_folder(self) -> bool:
        """Whether the URI names a folder, or files by a pattern."""
        return self._info.type == fs.FileType.Directory or (
            self._info.type == fs.FileType.NotFound and is_pattern(self._path)
        )

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the file; None for a folder."""
        return self._info.size if self._info.is_file else None

    def check(self, role: str) -> None:
        """Raises CorpusError where nothing exists at the URI."""
        if self._info.type == fs.FileType.NotFound and not self.is_folder:
            raise CorpusError(f"{role} {self.name} does not exist")

    def list_files(self) -> list[str]:
        """URIs of the files of the folder or the pattern, sorted. Raises CorpusError for none."""
        fixed = self._path.split("*")[0].split("?")[0].split("[")[0]
        has_pattern = self._info.type == fs.FileType.NotFound
        root = fixed.rpartition("/")[0] if has_pattern else self._path
        try:
            entries = self._files.get_file_info(fs.FileSelector(root, recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise self._explain("list", error) from None
        paths = sorted(entry.path for entry in entries if entry.is_file)
        if has_pattern:
            paths = [path for path in paths if _matches(path, self._path)]
        if not paths:
            raise CorpusError(f"no file at {self.name}")
        prefix = self.uri[: len(self.uri) - len(self._path)] if self.uri.endswith(self._path) else None
        if prefix is None:
            raise CorpusError(f"cannot list {self.name}: name its files one by one")
        return [prefix + path for path in paths]

    def open(self) -> Any:
        """The content as a binary stream. Raises CorpusError."""
        try:
            # Compression is recognised by the content, as for local files, and not by the name.
            return self._files.open_input_stream(self._path, compression=None)
        except (OSError, pa.ArrowException) as error:
            raise self._explain("read", error) from None

    def _explain(self, action: str, error: Exception) -> CorpusError:
        reason = str(error).replace(self.uri, self.name)
        return CorpusError(f"cannot {action} {self.name}: {' '.join(reason.splitlines()[:1])}")


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern part by part; a part `**` stands for any folders."""
    if "**" in pattern.split("/"):
        return fnmatchcase(path, pattern.replace("**/", "*"))
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
