"""The node's cache: a remote corpus is downloaded once per node, and every file is verified once per node.

A file counts as verified while its size and modification time are those it was verified with. The cache holds
this record, one per corpus and location. One process at a time downloads or verifies; the others wait for it.
Before a download, corpora that no process uses are evicted.

Every process that opens a cached corpus holds a shared lock on a file next to it until it ends, however it
ends; only a corpus that can be locked exclusively is deleted. The modification time of the lock's file is
the time at which the corpus was last opened.
"""

import fcntl
import json
import os
import shutil
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

from filelock import FileLock

from memtune.corpora.store.arrow_files import map_file
from memtune.corpora.store.content_checks import ContentCheck
from memtune.corpora.store.corpus_store import CorpusStore, read_verified
from memtune.corpora.store.manifest import Manifest
from memtune.errors import ConfigurationError, CorpusError, StorageError
from memtune.storage.folder import Folder
from memtune.storage.local_files import check_inside
from memtune.values import digest, parse_json

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
    except CorpusError as error:
        raise CorpusError(f"{error}; import {manifest.name} again with replace") from None


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
                for partial in folder.rglob("*.partial"):  # what killed downloads left
                    partial.unlink()
                evict(cache, folder, manifest.bytes)
            _verify_and_record(store, manifest, folder, root, record)
    return folder


def _verify_and_record(
    store: CorpusStore, manifest: Manifest, folder: Path, root: Path, record: Path
) -> None:
    """Verify the files and record the states that they had before.

    States read afterwards could be those of a file that replaced a verified one in the meantime.
    """
    before = _read_file_states(folder, root, manifest)
    copy = Folder.open(str(folder))
    for file in manifest.files:
        pieces = store.read_file(manifest.name, file) if store.local_path else read_verified(copy, file)
        try:
            deque(pieces, maxlen=0)
        except CorpusError:
            if store.local_path:
                raise
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            with (
                _replace_file(folder / file.path) as partial,
                partial.open("wb") as target,
                closing(store.read_file(manifest.name, file)) as pieces,
            ):
                target.writelines(pieces)
    after_download = before if store.local_path else _read_file_states(folder, root, manifest)
    check = ContentCheck(manifest, lambda file: map_file(folder / file.path))
    if problem := next(check.find_problems(), None):
        raise CorpusError(f"{folder}: {problem}")
    if _read_file_states(folder, root, manifest) != after_download:
        raise CorpusError(f"{folder} changed while it was verified")
    with _replace_file(record) as partial:
        partial.write_text(json.dumps(after_download), encoding="utf-8")


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


@contextmanager
def _replace_file(target: Path) -> Iterator[Path]:
    """The path to which the block writes what becomes the file at its end, whole or not at all."""
    partial = target.with_name(f"{target.name}.{uuid4().hex[:16]}.partial")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


LIMIT_VARIABLE = "MEMTUNE_CACHE_BYTES"
DISK_DIVISOR = 4
"""Without MEMTUNE_CACHE_BYTES, the limit is the size of the disk divided by this."""

_shared_locks: dict[Path, int] = {}
"""File descriptors of the locks that this process holds."""


def read_byte_limit(cache: Path) -> int:
    """Size limit of the cached corpora in bytes: MEMTUNE_CACHE_BYTES, else a quarter of its disk.

    Raises ConfigurationError when the variable is not a number of bytes.
    """
    chosen = os.environ.get(LIMIT_VARIABLE)
    if not chosen:
        return shutil.disk_usage(cache).total // DISK_DIVISOR
    if not chosen.strip().isdecimal():
        raise ConfigurationError(f'{LIMIT_VARIABLE} is a whole number of bytes, got "{chosen}"')
    return int(chosen)


def acquire_shared_lock(folder: Path) -> None:
    """Keep a corpus's folder in the cache until this process ends; waits while it is being deleted."""
    if folder not in _shared_locks:
        folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_lock_path(folder), os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _shared_locks[folder] = descriptor
    os.utime(_lock_path(folder))


def evict(cache: Path, folder: Path, needed_bytes: int) -> None:
    """Delete unused corpora until `needed_bytes` fit within the limit, or none is left to delete."""
    corpora = folder.parent
    with FileLock(corpora / ".eviction.lock"):
        folders = [path for path in corpora.iterdir() if path.is_dir() and path != folder]
        others = {path: sum(map(_measure_file, path.rglob("*"))) for path in folders}
        excess = sum(others.values()) + needed_bytes - read_byte_limit(cache)
        for path in sorted(others, key=_read_last_use):
            if excess <= 0:
                return
            lock = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
                excess -= others[path]
            except BlockingIOError:  # a process uses it
                continue
            finally:
                os.close(lock)


def _measure_file(path: Path) -> int:
    """Bytes of a file; 0 for a folder, and for a file that a download has renamed since it was listed."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return 0
    return state.st_size if stat.S_ISREG(state.st_mode) else 0


def _read_last_use(folder: Path) -> float:
    use = _lock_path(folder)
    return use.stat().st_mtime if use.exists() else 0.0


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.use")
