"""A store of corpora: a local folder, or a location that pyarrow.fs knows, such as s3://bucket/corpora.

Layout: NAME/manifest.json, and next to it one folder per import, which the paths of the manifest name.
A corpus exists when its manifest does: the manifest is written last, in one step.
"""

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from memtune.arguments import check_type
from memtune.corpora.store.manifest import Manifest, StoredFile, check_name, parse_manifest
from memtune.errors import CorpusError, MissingCorpusError, StorageError, did_you_mean
from memtune.settings import Settings
from memtune.storage.digests import ContentDigest, HashingSink, hash_bytes
from memtune.storage.folder import Folder, MissingFileError
from memtune.storage.local_files import hold_lock

MANIFEST_NAME = "manifest.json"
_CHUNK_BYTES = 2**20

_ABANDONED_SECONDS = 24 * 3600
"""Age at which an incomplete folder in a remote store, which has no locks, counts as a dead import's."""


def describe_file(path: str, sink: HashingSink) -> dict[str, Any]:
    """The fields of StoredFile for a file written through `sink`; `path` is relative to the corpus."""
    return {"path": path, "sha256": sink.content.sha256, "bytes": sink.content.bytes}


def read_verified(corpus: Folder, file: StoredFile) -> Generator[bytes]:
    """The content of a file in the folder of a corpus, in pieces.

    Raises CorpusError where the file is missing, and after the last piece where size or digest are not those
    of the manifest. A generator, so that an error of who writes the pieces elsewhere is not reported as one
    of the store.
    """
    content, name = ContentDigest(), f"{corpus}/{file.path}"
    try:
        with corpus.open_file(file.path) as stream:
            while content.bytes <= file.bytes and (data := stream.read(_CHUNK_BYTES)):
                content.add(data)
                yield data
    except MissingFileError as error:
        raise CorpusError(str(error)) from None
    if content.bytes != file.bytes:
        found = content.bytes if content.bytes < file.bytes else f"more than {file.bytes}"
        raise CorpusError(f"{name} has {found} bytes instead of {file.bytes}: it was truncated or altered")
    if content.sha256 != file.sha256:
        raise CorpusError(f"{name} has another SHA-256 than at its import: it was altered")


def write_batches(corpus: Folder, path: str, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    """Write record batches, one at least, as an Arrow IPC file; returns what `describe_file` says of it."""
    left = iter(batches)
    first = next(left)
    with (
        corpus.create_file(path) as sink,
        pa.ipc.new_file(pa.PythonFile(sink, mode="w"), first.schema) as writer,
    ):
        for batch in chain([first], left):
            writer.write_batch(batch)
    return describe_file(path, sink)


class CorpusStore:
    """A folder of corpora.

    `local_path` is its path where files can be mapped in place, None where they are downloaded first. Every
    method raises StorageError when the file system fails.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.local_path = folder.local_path

    @classmethod
    def open(cls, location: "str | Path | CorpusStore | None" = None) -> "CorpusStore":
        """The store at a path or URI; without one, or for an empty one, that of the environment's settings.

        Raises ConfigurationError for a URI with credentials, and ArgumentError for anything else.
        """
        if isinstance(location, CorpusStore):
            return location
        place = Settings.from_environment().corpus_store if location in (None, "") else location
        check_type("store", place, (str, Path), "a folder or a URI of corpora, such as settings.corpus_store")
        return cls(Folder.open(str(place)))

    def open_folder(self, name: str) -> Folder:
        """The folder of a corpus. Raises CorpusError for a symbolic link in its place."""
        if self._is_link(check_name(name)):
            raise CorpusError(
                f"{self.folder}: {name} is a symbolic link; delete it, and import or copy the corpus there"
            )
        return self.folder / name

    def list_names(self) -> list[str]:
        """Names of the corpora, sorted; none where the folder does not exist."""
        names = [
            str(entry.base_name)
            for entry in self.folder.list_entries()
            if entry.type == fs.FileType.Directory and not self._is_link(entry.base_name)
        ]
        found = self.folder.find_files([f"{name}/{MANIFEST_NAME}" for name in names])
        return [path.partition("/")[0] for path in found]

    def read_manifest(self, name: str) -> Manifest:
        """The manifest of a corpus. Raises MissingCorpusError, with the nearest name, where there is none."""
        found = self.find_manifest(name)
        if found is None:
            raise MissingCorpusError(
                f'no corpus "{name}" in {self.folder}; {did_you_mean(name, self.list_names())} (memtune '
                f"corpus list)"
            )
        return found

    def find_manifest(self, name: str) -> Manifest | None:
        """The manifest of a corpus, or None. Raises CorpusError when it cannot be read."""
        data = self.open_folder(name).read_document(MANIFEST_NAME)
        if data is None:
            return None
        manifest = parse_manifest(data, f"{self.folder}: {name}/{MANIFEST_NAME}")
        if manifest.name != name:
            raise CorpusError(
                f"{self.folder}: the folder {name} holds corpus {manifest.name}; rename it to {manifest.name}"
            )
        return manifest

    def read_file(self, name: str, file: StoredFile) -> Generator[bytes]:
        """The content of a file of a corpus; raises as `read_verified` does."""
        return read_verified(self.open_folder(name), file)

    @contextmanager
    def create_folder(self, name: str, folder: str) -> Iterator[Folder]:
        """The folder of a corpus with a new folder for its files, which an error in the block deletes."""
        corpus = self.open_folder(name)
        try:
            (corpus / folder).create()
            yield corpus
        except BaseException:
            self.clean(name, folder)
            raise

    def commit(self, manifest: Manifest) -> None:
        """Put the manifest in place in one step: readers see the corpus before or after, never between."""
        data = manifest.model_dump_json(indent=2).encode()
        self.open_folder(manifest.name).write_document(MANIFEST_NAME, data)

    def remove(self, manifest: Manifest) -> None:
        """Delete a corpus, its manifest first. Call it with the lock held."""
        (self.open_folder(manifest.name) / MANIFEST_NAME).delete()
        self.clean(manifest.name, manifest.folder)

    def clean(self, name: str, obsolete: str | None) -> None:
        """Delete the folder `obsolete` and files of dead imports, but not the corpus of the manifest.

        Call it with the lock held. In a remote store an import on another node may still be writing, so only
        entries that did not change for a day are deleted there. What cannot be deleted, such as files mapped
        over NFS, is left to the next import.
        """
        with suppress(OSError, StorageError, CorpusError):
            corpus, keep = self.open_folder(name), self.find_manifest(name)
            used = {MANIFEST_NAME, keep.folder} if keep else set()
            for entry in corpus.list_entries():
                if entry.base_name in used:
                    continue
                if entry.base_name == obsolete or self._is_abandoned(corpus, entry):
                    (corpus / entry.base_name).delete()
            if corpus.local_path and keep is None:
                corpus.local_path.rmdir()

    @contextmanager
    def lock(self, name: str, cache: Path) -> Iterator[None]:
        """Allow one import of a name at a time: everywhere for a local folder, on this node for others."""
        with ExitStack() as held:
            with self.folder.translate_errors("lock"):
                parent = self.local_path or cache
                parent.mkdir(parents=True, exist_ok=True)
                remote = hash_bytes((self.folder / name).path.encode())[:16]
                path = parent / (f".{name}.lock" if self.local_path else f"import-{remote}.lock")
                held.enter_context(hold_lock(path, f"another change of corpus {name}"))
            yield

    def _is_link(self, name: str) -> bool:
        with self.folder.translate_errors("read"):
            return self.local_path is not None and (self.local_path / name).is_symlink()

    def _is_abandoned(self, corpus: Folder, entry: fs.FileInfo) -> bool:
        """Whether no process still writes an entry that no manifest names."""
        if self.local_path:
            return True
        files = [] if entry.is_file else (corpus / entry.base_name).list_entries()
        newest = max(other.mtime_ns or 0 for other in (entry, *files))
        return time.time() - newest / 1e9 > _ABANDONED_SECONDS
