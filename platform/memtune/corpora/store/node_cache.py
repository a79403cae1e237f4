"""The node's cache: a remote corpus is downloaded once per node, and every file is verified once per node.

A file counts as verified while its size and modification time are those it was verified with. The cache holds
this record, one per corpus and location. One process at a time downloads or verifies; the others wait for it.
Before a download, corpora that no process uses are evicted (`cache_eviction`).
"""

import json
import os
import stat
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from memtune.corpora.store.arrow_files import map_file
from memtune.corpora.store.cache_eviction import acquire_shared_lock, evict
from memtune.corpora.store.content_checks import find_content_problems
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import Manifest, StoredFile
from memtune.errors import CorpusError, StorageError
from memtune.storage.digests import ContentDigest, hash_stream
from memtune.storage.regular_files import check_inside, open_regular_file
from memtune.values import digest, parse_json

__all__ = ["ensure_verified", "resolve_cache_folder"]

_CHUNK_BYTES = 2**20
_CHECKS_VERSION = 3
"""Raised when a check is added, so that files verified without it are verified again."""


def resolve_cache_folder(cache: Path | None = None) -> Path:
    """`cache` itself, else the folder of the variable MEMTUNE_CACHE, else ~/.cache/memtune."""
    return cache or Path(os.environ.get("MEMTUNE_CACHE") or "~/.cache/memtune").expanduser()


def ensure_verified(store: CorpusStore, manifest: Manifest, cache: Path) -> Path:
    """A folder on this node with the corpus's files, valid and of the sizes and digests in the manifest.

    It is a local store's own folder, or a copy in the cache. Raises CorpusError for the first file that is
    missing, truncated, altered or inconsistent, and StorageError when the store or the cache fails.
    """
    try:
        return _ensure_verified(store, manifest, cache)
    except OSError as error:
        raise StorageError(
            f"cannot write to the cache {cache}: {error}; free space there, or set MEMTUNE_CACHE to a "
            "folder that can be written"
        ) from None


def _ensure_verified(store: CorpusStore, manifest: Manifest, cache: Path) -> Path:
    content = digest([file.sha256 for file in manifest.files])[:16]
    if store.local_path:
        folder, root = store.local_path / manifest.name, store.local_path
    else:
        folder = root = cache / "corpora" / f"{manifest.name}-{content}"
        acquire_shared_lock(folder)
    # The whole manifest: the checks compare the files with its counts too.
    key = digest(_CHECKS_VERSION, str(folder), manifest)[:32]
    record = cache / "verified" / f"{key}.json"
    if _read_record(record) == _read_file_states(folder, root, manifest):
        return folder
    record.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(record.with_suffix(".lock")):
        if _read_record(record) != _read_file_states(folder, root, manifest):
            if not store.local_path:
                _prepare_folder(cache, folder, manifest)
            _verify_and_record(store, manifest, folder, root, record)
    return folder


def _verify_and_record(
    store: CorpusStore, manifest: Manifest, folder: Path, root: Path, record: Path
) -> None:
    """Verify the files and record the states that they had before.

    States read afterwards could be those of a file that replaced a verified one in the meantime.
    """
    before = _read_file_states(folder, root, manifest)
    _verify_files(store, manifest, folder, root)
    after_download = before if store.local_path else _read_file_states(folder, root, manifest)
    _verify_content(manifest, folder)
    if _read_file_states(folder, root, manifest) != after_download:
        raise CorpusError(
            f"{folder} changed while it was verified; import {manifest.name} again with replace"
        )
    _write_record(record, after_download)


def _prepare_folder(cache: Path, folder: Path, manifest: Manifest) -> None:
    """Free space for the files, and delete what killed downloads left."""
    for partial in folder.rglob("*.partial"):
        partial.unlink()
    evict(cache, folder, sum(file.bytes for file in manifest.files))


def _verify_files(store: CorpusStore, manifest: Manifest, folder: Path, root: Path) -> None:
    for file in manifest.files:
        problem = _find_file_problem(folder / file.path, root, file)
        if problem and not store.local_path:
            _download_file(store, manifest.name, file, folder / file.path)
        elif problem:
            raise CorpusError(f"{problem}; import {manifest.name} again with replace")


def _find_file_problem(path: Path, root: Path, file: StoredFile) -> str | None:
    """Why a file is not the one of the manifest, or None."""
    try:
        stream = open_regular_file(path, root)
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} is missing"
    except PermissionError as error:
        return f"{path} cannot be read ({error.strerror})"
    with stream:
        size = os.fstat(stream.fileno()).st_size
        if size != file.bytes:
            return f"{path} has {size} bytes instead of {file.bytes}: it was truncated or altered"
        same = hash_stream(stream) == file.sha256
    return None if same else f"{path} has another SHA-256 than at its import: it was altered"


def _verify_content(manifest: Manifest, folder: Path) -> None:
    """Raise CorpusError for the first problem of files that are those of the manifest."""
    problem = next(find_content_problems(manifest, lambda file: map_file(folder / file.path)), None)
    if problem:
        raise CorpusError(f"{folder}: {problem}; import {manifest.name} again with replace")


def _download_file(store: CorpusStore, name: str, file: StoredFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{uuid4().hex[:16]}.partial")
    try:
        content = _copy_file(store, name, file, partial)
        if (content.sha256, content.bytes) != (file.sha256, file.bytes):
            raise CorpusError(
                f"{store.uri}: {name}/{file.path} is truncated or altered ({content.bytes} bytes read, "
                f"imported with {file.bytes}); import {name} again with replace"
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _copy_file(store: CorpusStore, name: str, file: StoredFile, partial: Path) -> ContentDigest:
    """Copy a file of the store until it ends or exceeds the size in the manifest."""
    content = ContentDigest()
    with partial.open("wb") as copy, closing(_read_chunks(store, name, file)) as chunks:
        for data in chunks:
            content.add(data)
            copy.write(data)
            if content.bytes > file.bytes:
                break
    return content


def _read_chunks(store: CorpusStore, name: str, file: StoredFile) -> Generator[bytes]:
    """The content of a file of the store.

    A generator, so that an error in writing the copy is not reported as one of the store.
    """
    with store.open_file(name, file.path) as stream:
        while data := stream.read(_CHUNK_BYTES):
            yield data


def _read_file_states(folder: Path, root: Path, manifest: Manifest) -> dict[str, list[int]] | None:
    """Size and modification time of every file, or None when one is missing or no regular file.

    Raises StorageError for a symbolic link that leaves `root`.
    """
    found: dict[str, list[int]] = {}
    for file in manifest.files:
        try:
            state = check_inside(folder / file.path, root).stat()
        except OSError:
            return None
        if not stat.S_ISREG(state.st_mode):
            return None
        found[file.path] = [state.st_size, state.st_mtime_ns]
    return found


def _read_record(record: Path) -> object:
    """The states with which the files were verified; {} when they were not."""
    try:
        return parse_json(record.read_bytes())
    except (OSError, ValueError):
        return {}


def _write_record(record: Path, states: dict[str, list[int]] | None) -> None:
    partial = record.with_suffix(f".{uuid4().hex[:16]}")
    try:
        partial.write_text(json.dumps(states), encoding="utf-8")
        partial.replace(record)
    finally:
        partial.unlink(missing_ok=True)
