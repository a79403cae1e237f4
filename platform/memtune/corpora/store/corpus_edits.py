"""Remove and rename corpora of a store; readers see a corpus whole or not at all."""

from pathlib import Path

from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import Manifest, StoredFile, check_name
from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.errors import CorpusError

__all__ = ["remove_corpus", "rename_corpus"]

_CHUNK_BYTES = 2**20


def remove_corpus(name: str, store: str | Path | CorpusStore, cache: Path | None = None) -> Manifest:
    """Remove a corpus from a store; returns its manifest. Raises CorpusError for an unknown name."""
    place = CorpusStore.open(store)
    with place.lock(check_name(name), resolve_cache_folder(cache)):
        manifest = place.read_manifest(name)
        place.remove(manifest)
    return manifest


def rename_corpus(
    name: str, new_name: str, store: str | Path | CorpusStore, cache: Path | None = None
) -> Manifest:
    """Give a corpus another name; its digest stays. Returns the new manifest.

    The files are copied, verified, and removed under the old name at the end. Raises CorpusError for an
    unknown name, for one that exists, and for damaged files.
    """
    place, cache = CorpusStore.open(store), resolve_cache_folder(cache)
    with place.lock(check_name(new_name), cache):
        manifest = place.read_manifest(name)
        if place.find_manifest(new_name) is not None:
            raise CorpusError(
                f'{place.uri} already has a corpus "{new_name}"; remove it, or choose another name'
            )
        renamed = manifest.model_copy(update={"name": new_name})
        try:
            place.create_folder(new_name, manifest.folder)
            for file in manifest.files:
                _copy_file(place, manifest, new_name, file)
            place.commit(renamed)
        except BaseException:
            place.clean(new_name, None, obsolete=manifest.folder)
            raise
    remove_corpus(name, place, cache)
    return renamed


def _copy_file(store: CorpusStore, manifest: Manifest, new_name: str, file: StoredFile) -> None:
    with store.open_file(manifest.name, file.path) as source, store.create_file(new_name, file.path) as sink:
        while (data := source.read(_CHUNK_BYTES)) and sink.content.bytes <= file.bytes:
            sink.write(data)
    if (sink.content.sha256, sink.content.bytes) != (file.sha256, file.bytes):
        raise CorpusError(
            f"{store.uri}: {manifest.name}/{file.path} was truncated or altered; import {manifest.name} "
            "again with replace"
        )
