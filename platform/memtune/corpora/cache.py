"""The node's cache: a remote corpus is fetched once per node, and every file is verified once per node.

A file counts as verified while its size and time of change are what they were when its digest was taken; the
record of that, one for each corpus and place, lies in the cache. One process at a time fetches or verifies;
the others wait and find it done. What is fetched makes room for itself (`eviction`).
"""

import hashlib
import json
import os
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock

from memtune.corpora.eviction import hold, make_room
from memtune.corpora.location import Store
from memtune.corpora.manifest import Manifest, StoredFile
from memtune.errors import CorpusError, StorageError
from memtune.values import digest

__all__ = ["cache_folder", "file_problem", "sha256_of", "verified_folder"]

_CHUNK = 2**20


def cache_folder(cache: Path | None = None) -> Path:
    """The folder asked for, else that of the variable MEMTUNE_CACHE, else ~/.cache/memtune."""
    return cache or Path(os.environ.get("MEMTUNE_CACHE") or "~/.cache/memtune").expanduser()


def verified_folder(store: Store, manifest: Manifest, cache: Path) -> Path:
    """A folder on this node with the corpus' files, each of the size and digest the manifest says.

    A local store's own folder, or a copy in the cache. Raises CorpusError naming the first file that is
    missing, truncated or altered, and StorageError if the store or the cache cannot be read or written.
    """
    try:
        return _verified_folder(store, manifest, cache)
    except OSError as error:
        raise StorageError(
            f"cannot write to the cache {cache}: {error}; make room there, or set MEMTUNE_CACHE to a folder "
            "that can be written"
        ) from None


def _verified_folder(store: Store, manifest: Manifest, cache: Path) -> Path:
    content = digest([file.sha256 for file in manifest.files])[:16]
    folder = store.local / manifest.name if store.local else cache / "corpora" / f"{manifest.name}-{content}"
    record = cache / "verified" / f"{digest(str(folder), content)[:32]}.json"
    if not store.local:
        hold(folder)
    if _recorded(record) == _states(folder, manifest):
        return folder
    record.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(record.with_suffix(".lock")):
        if _recorded(record) != _states(folder, manifest):
            if not store.local:
                _prepare(cache, folder, manifest)
            _verify(store, manifest, folder)
            _write(record, _states(folder, manifest))
    return folder


def _prepare(cache: Path, folder: Path, manifest: Manifest) -> None:
    """Room for the files, without what fetches that were killed left of some."""
    for partial in folder.rglob("*.partial"):
        partial.unlink()
    make_room(cache, folder, sum(file.bytes for file in manifest.files))


def file_problem(folder: Path, file: StoredFile) -> str | None:
    """What is wrong with a file of a corpus, or None."""
    path = folder / file.path
    if not path.is_file():
        return f"{path} is missing"
    if path.stat().st_size != file.bytes:
        return f"{path} has {path.stat().st_size} bytes instead of {file.bytes}: it was truncated or altered"
    with path.open("rb") as stream:
        found = sha256_of(stream)
    return None if found == file.sha256 else f"{path} has another SHA-256 than at its import: it was altered"


def sha256_of(stream: Any) -> str:
    """Hexadecimal SHA-256 of what is left of a binary stream."""
    found = hashlib.sha256()
    while data := stream.read(_CHUNK):
        found.update(data)
    return found.hexdigest()


def _verify(store: Store, manifest: Manifest, folder: Path) -> None:
    for file in manifest.files:
        problem = file_problem(folder, file)
        if problem and not store.local:
            _fetch(store, manifest.name, file, folder / file.path)
        elif problem:
            raise CorpusError(f"{problem}; import {manifest.name} again with replace")


def _fetch(store: Store, name: str, file: StoredFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{uuid4().hex[:16]}.partial")
    try:
        found, size = _copy(store, name, file, partial)
        if (found, size) != (file.sha256, file.bytes):
            raise CorpusError(
                f"{store.uri}: {name}/{file.path} is truncated or altered ({size} bytes, imported with "
                f"{file.bytes}); import {name} again with replace"
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _copy(store: Store, name: str, file: StoredFile, partial: Path) -> tuple[str, int]:
    content = hashlib.sha256()
    with partial.open("wb") as copy, closing(_chunks(store, name, file)) as chunks:
        for data in chunks:
            content.update(data)
            copy.write(data)
        return content.hexdigest(), copy.tell()


def _chunks(store: Store, name: str, file: StoredFile) -> Generator[bytes]:
    """A file of the store. What goes wrong where its bytes are taken to is not told as the store's fault."""
    with store.open_file(name, file.path) as stream:
        while data := stream.read(_CHUNK):
            yield data


def _states(folder: Path, manifest: Manifest) -> dict[str, list[int]] | None:
    """Size and time of change of every file, or None if a file is missing."""
    try:
        states = {file.path: (folder / file.path).stat() for file in manifest.files}
    except OSError:
        return None
    return {path: [state.st_size, state.st_mtime_ns] for path, state in states.items()}


def _recorded(record: Path) -> dict[str, list[int]] | None:
    """The states written when the files were verified; {} if they never were."""
    try:
        found: dict[str, list[int]] = json.loads(record.read_bytes())
        return found
    except (OSError, ValueError):
        return {}


def _write(record: Path, states: dict[str, list[int]] | None) -> None:
    partial = record.with_suffix(f".{uuid4().hex[:16]}")
    try:
        partial.write_text(json.dumps(states))
        partial.replace(record)
    finally:
        partial.unlink(missing_ok=True)
