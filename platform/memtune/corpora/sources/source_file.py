"""Files, folders, patterns, pipes and URIs that a user names as sources, and their bytes.

The location of a source is a local path, a pattern such as `books/*.txt`, or a URI of pyarrow.fs. A pipe
(`-`, /dev/stdin, a FIFO, `<(zcat FILE)`) can be read once only, while some formats read their file twice. So
a pipe is copied to a temporary file without a name when it is first read. Compressed data, which their first
bytes tell, are decompressed while they are read: Python 3.11 has no zstd, so pyarrow decompresses, and xz,
which pyarrow does not know, comes from Python.
"""

import glob
import lzma
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from memtune.errors import CorpusError, suggest_nearest
from memtune.storage.folder import Folder
from memtune.storage.local_files import create_temporary_file, translate_spool_errors
from memtune.storage.uris import redact_uri, refuse_credentials

Location = Path | str
"""A local path, or a URI as text."""
SourceKind = Literal["file", "folder", "pattern", "pipe"]


def parse_location(text: str | Path) -> Location:
    """A URI as it is, everything else as a path; a URI of a local file becomes its path."""
    if isinstance(text, Path) or "://" not in text:
        return Path(text)
    return Path(unquote(urlsplit(text).path)) if text.startswith("file://") else text


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

    def refuse(error: OSError) -> None:
        raise CorpusError(
            f"cannot read the folder {error.filename}: {error.strerror}; change its permissions, or move it "
            f"out of {folder}"
        ) from None

    return sorted(Path(place, name) for place, _, names in os.walk(folder, onerror=refuse) for name in names)


def open_remote(uri: str, role: str) -> tuple[Folder, SourceKind]:
    """The place of a URI, and the kind of the source there.

    Raises CorpusError for a web address and where nothing exists, ConfigurationError for credentials, and
    StorageError where the file system fails.
    """
    refuse_credentials("the source", uri)
    if uri.startswith(("http://", "https://", "ftp://")):
        raise CorpusError(
            f"{redact_uri(uri)} is a web address; download it, or pipe it in: curl -sSfL ADDRESS | "
            "memtune corpus import NAME --train - --split 80,10,10"
        )
    place = Folder.open(uri)
    with place.translate_errors("read"):
        kind = place.filesystem.get_file_info(place.path).type
    if kind != fs.FileType.NotFound:
        return place, "folder" if kind == fs.FileType.Directory else "file"
    if not glob.has_magic(place.path):
        raise CorpusError(f"{role} {place} does not exist")
    return place, "pattern"


def list_remote_files(uri: str, place: Folder, kind: SourceKind) -> list[Location]:
    """URIs of the files of the folder or the pattern, sorted. Raises CorpusError for none."""
    fixed = place.path.split("*")[0].split("?")[0].split("[")[0]
    root = fixed.rpartition("/")[0] if kind == "pattern" else place.path
    with place.translate_errors("list"):
        entries = place.filesystem.get_file_info(fs.FileSelector(root, recursive=True))
    paths = sorted(entry.path for entry in entries if entry.is_file)
    if kind == "pattern":
        paths = [path for path in paths if _matches(path, place.path)]
    if not paths:
        raise CorpusError(f"no file at {place}")
    start = uri.rstrip("/").removesuffix(place.path)
    if start == uri.rstrip("/"):
        raise CorpusError(f"cannot list {place}: name its files one by one")
    return [start + path for path in paths]


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern part by part; a part `**` stands for any folders."""
    if "**" in pattern.split("/"):
        return fnmatchcase(path, pattern.replace("**/", "*"))
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


CONVERSION_ADVICE = (
    "convert text with iconv, unpack archives, and read Parquet and Arrow with --format parquet or arrow"
)
"""For a source that is binary or in another encoding."""
_STANDARD_INPUT = Path("-")
_COPY_BYTES = 2**20


def find_kind(place: Path, role: str = "the file") -> SourceKind:
    """The kind of the source at a local path; `-` is the standard input.

    Raises CorpusError for a path that is absent, may not be read, is a device, or has a name outside UTF-8.
    """
    try:
        str(place).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(place).decode(errors="backslashreplace")
        raise CorpusError(
            f"the name of {shown} is not UTF-8, so a manifest cannot hold it; rename the file"
        ) from None
    if glob.has_magic(str(place)) and not os.path.exists(place):
        find_local_files(place)
        return "pattern"
    mode = _read_status(place, role).st_mode
    if stat.S_ISFIFO(mode) or (place == _STANDARD_INPUT and (stat.S_ISREG(mode) or stat.S_ISSOCK(mode))):
        return "pipe"
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode) and place != _STANDARD_INPUT:
        return "folder"
    kind = "a socket" if stat.S_ISSOCK(mode) else "a terminal or another device"
    raise CorpusError(f"{role} {place} is {kind}; give a file, or pipe the text in")


class SourceFile:
    """A source that the user named; `close` deletes its temporary copies."""

    def __init__(self, location: Location, role: str = "the file") -> None:
        """Raises CorpusError for a location that cannot be a source."""
        self.path = parse_location(location)
        self.remote: Folder | None = None
        if isinstance(self.path, Path):
            self.kind = find_kind(self.path, role)
        else:
            self.remote, self.kind = open_remote(self.path, role)
        self._copies = ExitStack()
        self._pipe: IO[bytes] | None = None

    @property
    def name(self) -> str:
        """The location for messages and manifests, without credentials."""
        return str(self.remote or self.path)

    @property
    def local_path(self) -> Path:
        """The path of a local source; CorpusError for a remote one."""
        if isinstance(self.path, str):
            raise CorpusError(f"{self.name} is remote, and this format reads local files; download it first")
        return self.path

    @property
    def is_folder(self) -> bool:
        """Whether the source is several files: a folder or a pattern."""
        return self.kind in ("folder", "pattern")

    @property
    def pipe_identity(self) -> tuple[int, int]:
        """Device and inode number, equal for all names of one pipe."""
        status = _read_status(self.local_path, "the file")
        return status.st_dev, status.st_ino

    def list_files(self) -> list[Location]:
        """The files of a folder that are not hidden, or those that a pattern names, sorted.

        Raises CorpusError for a folder without files and for a pipe among them, which would block until
        another process writes to it.
        """
        if self.remote is not None:
            return list_remote_files(str(self.path), self.remote, self.kind)
        place = self.local_path
        if self.kind == "pattern":
            files = find_local_files(place)
        else:
            found = ((path, path.relative_to(place).parts) for path in list_folder_files(place))
            files = [path for path, parts in found if not any(part.startswith(".") for part in parts)]
        if not files:
            raise CorpusError(f"the folder {place} has no files")
        for path in files:
            if find_kind(path) == "pipe":
                raise CorpusError(f"{path} is a pipe among other files; remove it, or import it by itself")
        return list(files)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the file or of all files; None where they are not known: a pipe, compressed or remote."""
        if self.kind == "pipe" or self.remote is not None:
            return None
        size = 0
        for path in self.list_files() if self.is_folder else [self.local_path]:
            with open(path, "rb") as file:
                if _find_codec(_peek(file)):
                    return None
                size += os.fstat(file.fileno()).st_size
        return size

    def read_chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """The decompressed text, also several times and of a pipe, from its start. Raises OSError."""
        with closing(self._open_stored(is_text=True)) as stream:
            yield from self._decompress(stream, chunk_bytes)

    def open_binary(self) -> IO[bytes]:
        """The decompressed content as a file with random access, for formats that are not text.

        A remote and a compressed file are copied to a temporary file first. Raises OSError.
        """
        stream: IO[bytes] = self._open_stored(is_text=False)
        if self.remote is None and not _find_codec(_peek(stream)):
            return stream
        with closing(stream):
            return self._copy_chunks(self._decompress(stream, _COPY_BYTES))

    def close(self) -> None:
        """Deletes the temporary copies."""
        self._copies.close()

    def _decompress(self, stream: Any, chunk_bytes: int) -> Iterator[bytes]:
        """Chunks of the decompressed content of a stream at its start."""
        if codec := _find_codec(_peek(stream)):
            return _read_decompressed(self.name, stream, codec, chunk_bytes)
        return iter(lambda: stream.read(chunk_bytes), b"")

    def _open_stored(self, is_text: bool) -> Any:
        """The bytes as they are stored, as a file with random access; those of a pipe are copied first."""
        if self.remote is not None:
            with self.remote.translate_errors("read"):
                return self.remote.filesystem.open_input_file(self.remote.path)
        if self.kind != "pipe":
            return self.local_path.open("rb")
        if self._pipe is None:
            is_standard = self.path == _STANDARD_INPUT
            with open(0, "rb", closefd=False) if is_standard else self.local_path.open("rb") as pipe:
                chunks = iter(lambda: pipe.read(_COPY_BYTES), b"")
                self._pipe = self._copy_chunks(self._refuse_binary(chunks) if is_text else chunks)
        copy = os.fdopen(os.dup(self._pipe.fileno()), "rb")
        copy.seek(0)
        return copy

    def _copy_chunks(self, chunks: Iterator[bytes]) -> IO[bytes]:
        """A temporary file with the chunks, at its start."""
        with translate_spool_errors():
            copy = self._copies.enter_context(create_temporary_file())
        for chunk in chunks:
            with translate_spool_errors():
                copy.write(chunk)
        with translate_spool_errors():
            copy.flush()
        copy.seek(0)
        return copy

    def _refuse_binary(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The chunks of a pipe; CorpusError for binary data, which may be endless and fill the disk."""
        read, codec = 0, None
        for chunk in chunks:
            codec = codec if read else _find_codec(chunk)
            if not codec and (nul := chunk.find(b"\0")) >= 0:
                raise CorpusError(
                    f"{self.name}: byte {read + nul}: a NUL byte, so not text; {CONVERSION_ADVICE}"
                )
            read += len(chunk)
            yield chunk


def _peek(stream: Any) -> bytes:
    """The first bytes of a file, which is read from its start afterwards."""
    start: bytes = stream.read(_SIGNATURE_BYTES)
    stream.seek(0)
    return start


def _read_status(path: Path, role: str) -> os.stat_result:
    try:
        return os.fstat(0) if path == _STANDARD_INPUT else path.stat()
    except (FileNotFoundError, NotADirectoryError):
        siblings: list[str] = []
        with suppress(OSError):
            siblings = [name for name in os.listdir(path.parent) if Path(name).suffix == path.suffix]
        near = suggest_nearest(path.name, siblings)
        raise CorpusError(f"{role} {path} does not exist{near and f'; {near}'}") from None
    except (OSError, ValueError) as error:  # ValueError for a NUL in the path
        raise CorpusError(f"cannot read {role} {path}: {getattr(error, 'strerror', None) or error}") from None


_SIGNATURE_BYTES = 10
"""Bytes from the start of a file that tell its compression."""
_CODECS = ((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
# "BZh" alone may start a text: the level and the mark of a block, or of the end, follow.
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")

_MAX_EXPANSION = 200
"""Text compresses by 3 to 10; a repetitive one by up to 100."""
_FREE_BYTES = 2**28
"""A smaller text may expand by any factor."""


def _find_codec(start: bytes) -> str | None:
    """The compression of a file that starts with these bytes, or None."""
    if _BZIP2.match(start):
        return "bz2"
    return next((codec for signature, codec in _CODECS if start.startswith(signature)), None)


def _read_decompressed(name: object, stream: Any, codec: str, chunk_bytes: int) -> Iterator[bytes]:
    """Yields the decompressed content of a binary stream in chunks of at most `chunk_bytes`.

    Raises CorpusError, which calls the source `name`, for data that are damaged, end too early or expand
    without measure.
    """
    done = 0
    try:
        with lzma.LZMAFile(stream) if codec == "xz" else pa.input_stream(stream, codec) as text:
            while chunk := text.read(chunk_bytes):
                done += len(chunk)
                check_expansion(name, done, stream.tell())
                yield chunk
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise CorpusError(
            f"{name}: the {codec} data are damaged or cut off after {done:,} decompressed bytes "
            f"({' '.join(str(error).splitlines()[:1])}); fetch or compress the file again"
        ) from None


def check_expansion(name: object, text_bytes: int, stored_bytes: int) -> None:
    """Raises CorpusError for a text with far more bytes than what it was read from: it may have no end."""
    if text_bytes > max(_FREE_BYTES, _MAX_EXPANSION * stored_bytes):
        raise CorpusError(
            f"{name}: {stored_bytes:,} bytes expand to more than {text_bytes:,} bytes of text; the limit is "
            f"{_MAX_EXPANSION} times as many; if the text is right, import it uncompressed, as plain text"
        )
