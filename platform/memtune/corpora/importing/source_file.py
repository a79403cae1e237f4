"""Files, folders and pipes that a user names as sources, and their bytes.

A pipe (`-`, /dev/stdin, a FIFO, `<(zcat FILE)`) can be read once only, while some formats read their file
twice. So a pipe is copied to a temporary file without a name when it is first read.
"""

import os
import stat
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import IO

from memtune.corpora.importing.file_signatures import SIGNATURE_BYTES, refuse_binary_signature
from memtune.corpora.importing.spool import create_temporary_file, translate_spool_errors
from memtune.errors import CorpusError

__all__ = ["FileKind", "SourceFile", "find_kind", "get_pipe_identity", "list_folder_files"]

_STANDARD_INPUT = Path("-")
_COPY_BYTES = 2**20


class FileKind(Enum):
    """Kinds of sources."""

    FILE = auto()
    FOLDER = auto()
    PIPE = auto()


def find_kind(path: Path, role: str = "the file") -> FileKind:
    """The kind of the source at a path; `-` is the standard input.

    Raises CorpusError for a path that is absent, may not be read, is a device, or has a name outside UTF-8.
    """
    _refuse_undecodable_name(path)
    mode = _read_status(path, role).st_mode
    if stat.S_ISFIFO(mode) or (path == _STANDARD_INPUT and (stat.S_ISREG(mode) or stat.S_ISSOCK(mode))):
        return FileKind.PIPE
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode) and path != _STANDARD_INPUT:
        return FileKind.FOLDER
    kind = "a socket" if stat.S_ISSOCK(mode) else "a terminal or another device"
    raise CorpusError(f"{role} {path} is {kind}; give a file, or pipe the text in")


def get_pipe_identity(path: Path) -> tuple[int, int]:
    """Device and inode number, equal for all names of one pipe."""
    status = _read_status(path, "the file")
    return status.st_dev, status.st_ino


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


class SourceFile:
    """A file, folder or pipe that the user named; `close` deletes the copy of a pipe."""

    def __init__(self, path: Path, role: str = "the file") -> None:
        """Raises CorpusError for a path that cannot be a source."""
        self.path = path
        self.kind = find_kind(path, role)
        self._copy: IO[bytes] | None = None

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the file or of all files of the folder; None for a pipe."""
        if self.kind is FileKind.PIPE:
            return None
        files = list_folder_files(self.path) if self.kind is FileKind.FOLDER else [self.path]
        return sum(os.stat(file, follow_symlinks=file == self.path).st_size for file in files)

    def read_chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        """Yields the content from its start; may be called several times, also for a pipe.

        Raises OSError, and CorpusError for a binary format.
        """
        if self.kind is FileKind.PIPE:
            yield from self._read_copy(chunk_bytes)
            return
        with self.path.open("rb") as file:
            refuse_binary_signature(self.path, file.peek(SIGNATURE_BYTES))
            yield from iter(lambda: file.read(chunk_bytes), b"")

    def close(self) -> None:
        """Deletes the copy of a pipe."""
        if self._copy is not None:
            self._copy.close()

    def _read_copy(self, chunk_bytes: int) -> Iterator[bytes]:
        if self._copy is None:
            with translate_spool_errors():
                self._copy = create_temporary_file()
            self._copy_pipe(self._copy)
        offset = 0
        # Reading at an offset leaves no position that two readers of one copy would share.
        while chunk := os.pread(self._copy.fileno(), chunk_bytes, offset):
            offset += len(chunk)
            yield chunk

    def _copy_pipe(self, target: IO[bytes]) -> None:
        """Copies the pipe. Raises CorpusError at the first NUL: endless binary data would fill the disk."""
        copied = 0
        with self._open_pipe() as pipe:
            refuse_binary_signature(self.path, pipe.peek(SIGNATURE_BYTES))  # type: ignore[attr-defined]
            while chunk := pipe.read(_COPY_BYTES):
                if (nul := chunk.find(b"\0")) >= 0:
                    raise CorpusError(
                        f"{self.path}: byte {copied + nul}: a NUL byte, so the data are binary or UTF-16 "
                        "and not UTF-8 text"
                    )
                copied += len(chunk)
                with translate_spool_errors():
                    target.write(chunk)
        with translate_spool_errors():
            target.flush()

    def _open_pipe(self) -> IO[bytes]:
        return open(0, "rb", closefd=False) if self.path == _STANDARD_INPUT else self.path.open("rb")


def _refuse_undecodable_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="backslashreplace")
        raise CorpusError(
            f"the name of {shown} is not UTF-8, so a manifest cannot hold it; rename the file"
        ) from None


def _read_status(path: Path, role: str) -> os.stat_result:
    try:
        return os.fstat(0) if path == _STANDARD_INPUT else path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise CorpusError(f"{role} {path} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError for a NUL in the path
        raise CorpusError(f"cannot read {role} {path}: {getattr(error, 'strerror', None) or error}") from None
