"""Where corpora lie: a local folder, or any place that pyarrow.fs knows by a URI, such as s3://bucket/corpora.

Layout: NAME/manifest.json, and beside it the folder that the manifest's paths lead into, one for each import.
A corpus is there when its manifest is: that is written last, in one step.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from filelock import FileLock
from pyarrow import fs

from memtune.corpora.manifest import Manifest, StoredFile, check_name, parse_manifest
from memtune.errors import CorpusError, StorageError, did_you_mean
from memtune.storage import open_files

__all__ = ["MANIFEST", "HashingSink", "Store"]

MANIFEST = "manifest.json"

_ABANDONED_SECONDS = 24 * 3600
"""Age at which a half-written folder in a remote store, where no lock tells, is taken for a dead import's."""


class HashingSink:
    """A binary file being written, with the digest of what went in."""

    def __init__(self, sink: Any) -> None:
        self.closed = False
        self.bytes = 0
        self._sink = sink
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Writes the data and adds it to the digest."""
        size = memoryview(data).nbytes
        self._sink.write(data)
        self._hash.update(data)
        self.bytes += size
        return size

    def flush(self) -> None:
        """Passes on what the sink holds back."""
        self._sink.flush()

    def record(self, path: str) -> StoredFile:
        """The manifest's line about the file, to be found at `path`."""
        return StoredFile(path=path, sha256=self._hash.hexdigest(), bytes=self.bytes)


class Store:
    """A folder of corpora.

    `local` is its path where files can be mapped in place, None where they are fetched first. Every method
    raises StorageError when the file system does not do its part.
    """

    def __init__(self, uri: str, filesystem: fs.FileSystem, root: str) -> None:
        self.uri = uri
        self.local = Path(root) if isinstance(filesystem, fs.LocalFileSystem) else None
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    @classmethod
    def at(cls, place: "str | Path | Store") -> "Store":
        """The store at a path or URI."""
        if isinstance(place, Store):
            return place
        uri = str(place)
        if "://" not in uri:
            return cls(uri, fs.LocalFileSystem(), str(Path(uri).expanduser().absolute()))
        try:
            filesystem, root = open_files(uri)
        except (OSError, ValueError) as error:
            raise StorageError(f"no store can be at {uri}: {error}") from None
        return cls(uri, filesystem, root)

    def names(self) -> list[str]:
        """Names of the corpora, sorted; none where there is no folder."""
        with self._faults("list"):
            selector = fs.FileSelector(self._root, allow_not_found=True)
            folders = [
                info.base_name for info in self._filesystem.get_file_info(selector) if not info.is_file
            ]
            manifests = self._filesystem.get_file_info([self._path(name, MANIFEST) for name in folders])
        return sorted(name for name, info in zip(folders, manifests, strict=True) if info.is_file)

    def manifest(self, name: str) -> Manifest:
        """The manifest of a corpus; a CorpusError, with the nearest name there is, if there is none."""
        found = self.find_manifest(name)
        if found is None:
            raise CorpusError(
                f'no corpus "{name}" in {self.uri}; {did_you_mean(name, self.names())} (memtune corpus list)'
            )
        return found

    def find_manifest(self, name: str) -> Manifest | None:
        """The manifest of a corpus, or None."""
        path = self._path(check_name(name), MANIFEST)
        with self._faults("read"):
            if not self._filesystem.get_file_info(path).is_file:
                return None
            with self._filesystem.open_input_stream(path) as stream:
                data = stream.read()
        manifest = parse_manifest(data, f"{self.uri}: {name}/{MANIFEST}")
        if manifest.name != name:
            raise CorpusError(
                f"{self.uri}: the folder {name} holds corpus {manifest.name}; name it {manifest.name} again"
            )
        return manifest

    @contextmanager
    def open_file(self, name: str, path: str) -> Iterator[Any]:
        """A file of a corpus as a binary stream to read; a CorpusError if there is none."""
        with self._faults("read"):
            if not self._filesystem.get_file_info(self._path(name, path)).is_file:
                raise CorpusError(f"{self.uri}: {name}/{path} is missing; import {name} again with replace")
            with self._filesystem.open_input_stream(self._path(name, path)) as stream:
                yield stream

    def new_folder(self, name: str) -> str:
        """A name for the data of one import that no other import has; the folder is there afterwards."""
        folder = f"data-{uuid4().hex[:16]}"
        with self._faults("write to"):
            self._filesystem.create_dir(self._path(name, folder), recursive=True)
        return folder

    @contextmanager
    def new_file(self, name: str, path: str) -> Iterator[HashingSink]:
        """A file of a corpus to be written, on the disk when the block ends."""
        with self._faults("write to"):
            if self.local:
                with (self.local / name / path).open("wb") as file:
                    yield HashingSink(file)
                    _persist(file)
            else:
                with self._filesystem.open_output_stream(self._path(name, path)) as stream:
                    yield HashingSink(stream)

    def commit(self, manifest: Manifest) -> None:
        """Puts the manifest in its place in one step: readers see the corpus before or after, never between.

        It is written beside its place and moved there: an interrupted stream is closed with what it has.
        """
        data = manifest.model_dump_json(indent=2).encode()
        place = self._path(manifest.name, MANIFEST)
        partial = self._path(manifest.name, f"{uuid4().hex[:16]}.partial")
        with self._faults("write to"):
            if self.local:
                _replace(self.local / manifest.name / MANIFEST, data)
            else:
                with self._filesystem.open_output_stream(partial) as stream:
                    stream.write(data)
                self._filesystem.move(partial, place)

    def clean(self, name: str, keep: Manifest | None, spent: str | None = None) -> None:
        """Removes the folder `spent` and what imports that died left behind, all but the corpus of `keep`.

        Call it with the lock held. In a remote store an import on another node could be writing, so there
        only what was left alone for a day is taken for a dead one's. What cannot be removed, as files mapped
        over NFS, is left to the next import.
        """
        used = {MANIFEST, keep.folder} if keep else set()
        with suppress(OSError):
            found = self._filesystem.get_file_info(fs.FileSelector(self._path(name), allow_not_found=True))
            for info in found:
                if info.base_name not in used and (info.base_name == spent or self._dead(info)):
                    self._delete(info)
            if self.local and keep is None:
                (self.local / name).rmdir()

    def check_writable(self) -> None:
        """A StorageError if a local folder can be seen to take no files; it makes nothing."""
        if not self.local:
            return
        nearest = next(folder for folder in (self.local, *self.local.parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise StorageError(f"cannot write to {self.uri}: {nearest} is not a folder that can be written")

    @contextmanager
    def lock(self, name: str, cache: Path) -> Iterator[None]:
        """One import of a name at a time: anywhere for a local folder, on this node for a remote store."""
        with self._faults("lock"):
            if self.local:
                self.local.mkdir(parents=True, exist_ok=True)
                path = self.local / f".{name}.lock"
            else:
                cache.mkdir(parents=True, exist_ok=True)
                path = cache / f"import-{hashlib.sha256(self._path(name).encode()).hexdigest()[:16]}.lock"
            lock = FileLock(path)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _dead(self, info: fs.FileInfo) -> bool:
        """Whether nobody is writing a file or folder that no manifest leads to."""
        if self.local:
            return True
        inside = fs.FileSelector(info.path, recursive=True, allow_not_found=True)
        files = [] if info.is_file else self._filesystem.get_file_info(inside)
        newest = max(entry.mtime_ns or 0 for entry in (info, *files))
        return time.time() - newest / 1e9 > _ABANDONED_SECONDS

    def _delete(self, info: fs.FileInfo) -> None:
        if info.is_file:
            self._filesystem.delete_file(info.path)
        else:
            self._filesystem.delete_dir(info.path)

    def _path(self, *parts: str) -> str:
        return "/".join((self._root, *parts))

    @contextmanager
    def _faults(self, action: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise StorageError(f"cannot {action} {self.uri}: {error}") from error


def _persist(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{uuid4().hex[:16]}.partial")
    with temporary.open("wb") as file:
        file.write(data)
        _persist(file)
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
