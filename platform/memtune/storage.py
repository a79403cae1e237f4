"""Files in shared storage: a local folder, a mounted path, or any URI that pyarrow.fs understands.

A folder of files becomes visible at once or not at all: the files are copied first, and a small JSON
document that names them with their digests is put in place last. An object store that is busy, slow or gone
is asked again with growing pauses before that is an error.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

from memtune.errors import StorageError

__all__ = ["Folder", "open_files"]

ATTEMPTS = 12
"""How often an object store is asked: pauses double from a second to twenty, each shortened by chance, so
that between one and three minutes pass. That outlasts a store that is overrun or restarted."""
CONNECT_SECONDS, ANSWER_SECONDS = 10, 60
"""An attempt ends without a connection or without a byte for so long; pyarrow's own three seconds are less
than a busy store takes for its first byte."""


def open_files(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, and the path in it. Raises ValueError or OSError where there is none."""
    files, root = fs.FileSystem.from_uri(uri)
    if isinstance(files, fs.S3FileSystem):
        _, (options,) = files.__reduce__()  # pyarrow reads every option from a URI but these
        patient = fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
        times = {"connect_timeout": CONNECT_SECONDS, "request_timeout": ANSWER_SECONDS}
        files = fs.S3FileSystem(**{**options, **times, "retry_strategy": patient})
    return files, root


class Folder:
    """A folder in storage, addressed by a local path or a URI such as `s3://bucket/studies`."""

    def __init__(self, files: fs.FileSystem, root: str) -> None:
        """The folder at path `root` of a pyarrow file system; `Folder.at` reads a URI."""
        self.files = files
        self.root = root

    @classmethod
    def at(cls, uri: str) -> "Folder":
        """The folder of a local path or a URI. Raises StorageError for a URI no file system understands."""
        try:
            if "://" in uri:
                return cls(*open_files(uri))
            return cls(fs.LocalFileSystem(), str(Path(uri).absolute()))
        except (ValueError, OSError) as error:
            raise StorageError(f"cannot open storage {uri}: {error}") from error

    def __truediv__(self, name: str) -> "Folder":
        """The folder `name` below this one."""
        return Folder(self.files, f"{self.root}/{name}")

    def __str__(self) -> str:
        """Where the folder is, for messages."""
        return (
            self.root
            if isinstance(self.files, fs.LocalFileSystem)
            else f"{self.files.type_name}://{self.root}"
        )

    def names(self) -> list[str]:
        """Names directly below, sorted; empty when the folder is not there. Raises StorageError."""
        selector = fs.FileSelector(self.root, allow_not_found=True)
        with self._faults("list"):
            return sorted(str(entry.base_name) for entry in self.files.get_file_info(selector))

    def read_json(self, name: str) -> Any | None:
        """The JSON document `name`, or None when it is not there. Raises StorageError when it is not JSON."""
        try:
            with self.files.open_input_stream(f"{self.root}/{name}") as stream:
                return json.loads(stream.read())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StorageError(f"{self}/{name} is not JSON: {error}") from error
        except OSError as error:
            raise StorageError(f"cannot read {self}/{name}: {error}") from error

    def write_json(self, name: str, document: object) -> None:
        """Put a JSON document in place of an older one, whole or not at all. Raises StorageError."""
        path = f"{self.root}/{name}"
        with self._faults("write to"):
            self.files.create_dir(self.root, recursive=True)
            with self.files.open_output_stream(f"{path}.new") as stream:
                stream.write(json.dumps(document, indent=1).encode())
            self.files.move(f"{path}.new", path)

    def upload(self, source: Path) -> None:
        """Copy the files of a local folder into this one. Raises StorageError."""
        with self._faults("write to"):
            self.files.create_dir(self.root, recursive=True)
            fs.copy_files(str(source), self.root, fs.LocalFileSystem(), self.files)

    def download(self, target: Path) -> None:
        """Copy the files of this folder into a local one. Raises StorageError."""
        with self._faults("read"):
            target.mkdir(parents=True, exist_ok=True)
            fs.copy_files(self.root, str(target), self.files, fs.LocalFileSystem())

    def delete(self) -> None:
        """Remove the folder with all below it; nothing happens when it is not there. Raises StorageError."""
        with self._faults("delete"):
            if self.files.get_file_info(self.root).type != fs.FileType.NotFound:
                self.files.delete_dir(self.root)

    @contextmanager
    def _faults(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"cannot {action} {self}: {error}") from error
