"""Files in shared storage: a local folder, a mounted path, or any URI that pyarrow.fs understands.

A document replaces an older one whole or not at all. A group of files becomes visible in one step: the files
are written first, and a small document that names them with their digests last. Requests to an object store
that is busy, slow or unreachable are retried with growing pauses before they count as an error.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from memtune.errors import StorageError, explain_system_error
from memtune.storage.digests import HashingSink
from memtune.storage.local_files import open_regular_file
from memtune.storage.uris import redact_uri, refuse_credentials
from memtune.values import parse_json

MAX_ATTEMPTS = 12
"""Requests to an object store before one fails: pauses double from 1 s to 20 s, each shortened at random, so
that between one and three minutes pass. That outlasts a store that is overloaded or restarted."""
CONNECT_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS = 10, 60
"""Time for a connection, and between two received bytes. pyarrow's default of 3 s is less than a busy store
takes for its first byte."""
PARTIAL_SUFFIX = ".partial"
"""Ends the name of a document that is being written, or whose writer was killed."""
CHUNK_BYTES, MAX_DOCUMENT_BYTES = 2**20, 2**26
"""Bytes read at once, and the size limit of a JSON document: a manifest that lists 100,000 source files has
about 20 MB."""


class MissingFileError(StorageError):
    """A file does not exist."""


def open_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path in it. Raises ValueError or OSError for an unknown URI."""
    filesystem, root = fs.FileSystem.from_uri(uri)
    if isinstance(filesystem, fs.S3FileSystem):
        _, (options,) = filesystem.__reduce__()  # a URI cannot hold the retry strategy and the timeouts
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=MAX_ATTEMPTS)
        timeouts = {"connect_timeout": CONNECT_TIMEOUT_SECONDS, "request_timeout": REQUEST_TIMEOUT_SECONDS}
        filesystem = fs.S3FileSystem(**{**options, **timeouts, "retry_strategy": retries})
    return filesystem, root


class Folder:
    """A folder in storage, addressed by a local path or a URI such as `s3://bucket/studies`.

    `uri` names it in messages and holds no credentials. Every method raises StorageError when the file system
    fails. Files of a local folder are read only when they are regular files that lie, with symbolic links
    resolved, below the path that was opened.
    """

    def __init__(
        self, filesystem: fs.FileSystem, path: str, uri: str = "", boundary: Path | None = None
    ) -> None:
        """The folder at a path of a pyarrow file system; `Folder.open` reads a URI.

        `boundary` is the local folder that no symbolic link may leave; without it, the folder itself.
        """
        self.filesystem = filesystem
        self.path = path.rstrip("/") or path
        self.uri = uri or f"{filesystem.type_name}://{self.path}"
        self.local_path = Path(self.path) if isinstance(filesystem, fs.LocalFileSystem) else None
        self._boundary = boundary or Path(self.path)

    @classmethod
    def open(cls, uri: str) -> "Folder":
        """The folder of a local path or a URI.

        Raises StorageError for a URI no file system understands and ConfigurationError for one with
        credentials.
        """
        refuse_credentials("the storage location", uri)
        if "://" not in uri:
            path = str(Path(uri).expanduser().absolute())
            return cls(fs.LocalFileSystem(), path, path)
        shown = redact_uri(uri)
        try:
            filesystem, path = open_filesystem(uri)
        except (ValueError, OSError) as error:
            reason = str(error).replace(uri, shown)
            raise StorageError(
                f"cannot open storage {shown}: {reason}; write a path or a URI such as s3://bucket/folder"
            ) from None
        return cls(filesystem, path, path if isinstance(filesystem, fs.LocalFileSystem) else shown)

    def __truediv__(self, name: str) -> "Folder":
        """The folder `name` below this one."""
        uri = f"{self.uri.rstrip('/')}/{name}"
        return Folder(self.filesystem, self._join(name), uri, self._boundary)

    def __str__(self) -> str:
        return self.uri

    def list_entries(self) -> list[fs.FileInfo]:
        """Files and folders directly below, by name; empty when the folder does not exist."""
        selector = fs.FileSelector(self.path, allow_not_found=True)
        with self.translate_errors("list"):
            return sorted(self.filesystem.get_file_info(selector), key=lambda entry: entry.base_name)

    def list_names(self) -> list[str]:
        """Names directly below, sorted; empty when the folder does not exist."""
        return [str(entry.base_name) for entry in self.list_entries()]

    def find_files(self, paths: list[str]) -> list[str]:
        """Those of the paths below this folder that are regular files, in one request per file system."""
        with self.translate_errors("list"):
            entries = self.filesystem.get_file_info([self._join(path) for path in paths])
        return [path for path, entry in zip(paths, entries, strict=True) if entry.is_file]

    @contextmanager
    def open_file(self, name: str) -> Iterator[Any]:
        """A regular file as a binary stream. Raises MissingFileError when it does not exist."""
        try:
            if self.local_path:
                stream = open_regular_file(self.local_path / name, self._boundary)
            else:
                stream = self.filesystem.open_input_stream(self._join(name))
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(f"{self}/{name} is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"cannot read {self}/{name}: {explain_system_error(error)}") from error
        with self.translate_errors("read"), stream:
            yield stream

    def read_document(self, name: str) -> bytes | None:
        """The content of a small file, or None when it does not exist."""
        data = bytearray()
        try:
            with self.open_file(name) as stream:
                # In chunks, because `read(limit)` allocates the limit first, however short the file is.
                while len(data) <= MAX_DOCUMENT_BYTES and (chunk := stream.read(CHUNK_BYTES)):
                    data += chunk
        except MissingFileError:
            return None
        if len(data) > MAX_DOCUMENT_BYTES:
            raise StorageError(
                f"{self}/{name} is larger than {MAX_DOCUMENT_BYTES} bytes and was not written here"
            )
        return bytes(data)

    def read_json(self, name: str) -> Any | None:
        """The JSON document `name`, or None when it does not exist."""
        data = self.read_document(name)
        if data is None:
            return None
        try:
            return parse_json(data)
        except ValueError as error:
            raise StorageError(f"{self}/{name} is not JSON: {error}; restore or delete the file") from None

    def write_json(self, name: str, document: object) -> None:
        """Put a JSON document in place of an older one, whole or not at all."""
        self.write_document(name, json.dumps(document, indent=1).encode())

    def write_document(self, name: str, data: bytes) -> None:
        """Put a file in place of an older one, whole or not at all.

        An object store keeps what an interrupted stream has received, so the content goes to a name of its
        own and moves from there. The name is unique: two writers never share a partial file.
        """
        partial = f"{name}.{uuid4().hex[:16]}{PARTIAL_SUFFIX}"
        with self.translate_errors("write to"):
            self.filesystem.create_dir(self.path, recursive=True)
            try:
                with self.create_file(partial) as sink:
                    sink.write(data)
                self.filesystem.move(self._join(partial), self._join(name))
            except BaseException:
                with suppress(OSError):  # the first error says more
                    self.filesystem.delete_file(self._join(partial))
                raise
            if self.local_path:  # then a renamed file survives a power failure
                descriptor = os.open(self.local_path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    @contextmanager
    def create_file(self, name: str) -> Iterator[HashingSink]:
        """A new file for writing; its content is on disk when the block ends."""
        with self.translate_errors("write to"):
            if self.local_path:
                with (self.local_path / name).open("xb") as file:
                    yield HashingSink(file)
                    file.flush()
                    os.fsync(file.fileno())
            else:
                with self.filesystem.open_output_stream(self._join(name)) as stream:
                    yield HashingSink(stream)

    def create(self) -> None:
        """Create the folder and those above it."""
        with self.translate_errors("write to"):
            self.filesystem.create_dir(self.path, recursive=True)

    def upload(self, source: Path) -> None:
        """Copy the files of a local folder into this one."""
        with self.translate_errors("write to"):
            self.filesystem.create_dir(self.path, recursive=True)
            fs.copy_files(str(source), self.path, fs.LocalFileSystem(), self.filesystem)

    def download(self, target: Path) -> None:
        """Copy the files of this folder into a local one; every entry must be a regular file below it."""
        selector = fs.FileSelector(self.path, recursive=True)
        with self.translate_errors("read"):
            target.mkdir(parents=True, exist_ok=True)
            for path in self.local_path.rglob("*") if self.local_path else ():
                if not path.is_dir() or path.is_symlink():  # refuse devices, FIFOs and links that lead out
                    open_regular_file(path, self._boundary).close()
            for entry in self.filesystem.get_file_info(selector):
                name = entry.path.removeprefix(f"{self.path}/")
                # A key of an object store may contain "..", which a local folder would follow.
                if name == entry.path or not {"", ".", ".."}.isdisjoint(name.split("/")):
                    raise StorageError(
                        f"{self} has an entry {entry.path!r} that leads out of the folder; delete it"
                    )
                if entry.is_file:
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    fs.copy_files(entry.path, str(target / name), self.filesystem, fs.LocalFileSystem())

    def measure_bytes(self) -> int:
        """The size of all files below; 0 when the folder does not exist."""
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        with self.translate_errors("list"):
            return sum(entry.size or 0 for entry in self.filesystem.get_file_info(selector))

    def delete(self) -> None:
        """Delete the folder with its content, or the file in its place; nothing happens without either."""
        # Suppressed: another process may delete it at the same time.
        with self.translate_errors("delete"), suppress(FileNotFoundError):
            kind = self.filesystem.get_file_info(self.path).type
            if kind == fs.FileType.Directory:
                self.filesystem.delete_dir(self.path)
            elif kind != fs.FileType.NotFound:
                self.filesystem.delete_file(self.path)

    def check_writable(self) -> None:
        """Raise StorageError when a local folder cannot be written; nothing is created."""
        if not self.local_path:
            return
        with self.translate_errors("write to"):
            nearest = next(
                folder for folder in (self.local_path, *self.local_path.parents) if folder.exists()
            )
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise StorageError(f"cannot write to {self}: {nearest} is not a folder that can be written")

    def _join(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"

    @contextmanager
    def translate_errors(self, action: str) -> Iterator[None]:
        """Raise StorageError for an error of the file system."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"cannot {action} {self}: {explain_system_error(error)}") from error
