"""Writing a corpus: counted text and a chosen vocabulary become files, and a manifest in one step."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from memtune.corpora.annotating import AnnotationTables
from memtune.corpora.counting import SplitCounter
from memtune.corpora.location import Store
from memtune.corpora.manifest import (
    FileRecord,
    ImportOptions,
    Manifest,
    SourceRecord,
    SplitSummary,
    VectorsRecord,
    VocabularyRecord,
)
from memtune.corpora.selection import Selection
from memtune.corpora.shards import ShardWriter, token_type, write_batch
from memtune.corpora.vectors import VectorFile, Vectors
from memtune.errors import CorpusError, StorageError
from memtune.values import digest

__all__ = ["CorpusWriter", "content_digest"]


_CONTENT_VERSION = 1


def content_digest(
    vocabulary: str, splits: Mapping[str, tuple[str, str]], annotations: Mapping[str, Any]
) -> str:
    """The digest of a corpus: of its vocabulary's, those of each split's tokens and lengths, and those of
    its annotations and vectors, which say nothing where there are none."""
    text = {split: list(digests) for split, digests in splits.items()}
    return digest(_CONTENT_VERSION, vocabulary, text, *([dict(annotations)] if annotations else []))


@dataclass(frozen=True)
class CorpusWriter:
    """One import's way into the store."""

    store: Store
    name: str
    counters: Mapping[str, SplitCounter]
    tables: AnnotationTables
    selection: Selection
    vectors: tuple[Vectors, VectorFile, FileRecord] | None
    options: ImportOptions
    sources: Mapping[str, SourceRecord]
    licence: str | None
    ideal: Mapping[str, float] | None

    def write(self, replace: bool) -> tuple[Manifest, bool]:
        """The manifest then in the store, and whether the same content was there already.

        Call it with the lock held. A CorpusError if the name holds another content and `replace` is not set.
        """
        taken = self._taken(replace)
        folder = self.store.new_folder(self.name)
        try:
            manifest = self._write_files(folder)
            if taken and not replace:
                self._refuse_other(taken, manifest)
            else:
                self.store.commit(manifest)
        except BaseException:
            self._withdraw(folder)
            raise
        if taken and not replace:
            self.store.clean(self.name, taken, spent=folder)
            return taken, True
        self.store.clean(self.name, manifest, spent=taken.folder if taken else None)
        return manifest, False

    def _taken(self, replace: bool) -> Manifest | None:
        """The manifest in place; one that cannot be read is in nobody's way if it is to be replaced."""
        try:
            return self.store.find_manifest(self.name)
        except CorpusError:
            if replace:
                return None
            raise

    def _refuse_other(self, taken: Manifest, manifest: Manifest) -> None:
        if taken.digest != manifest.digest:
            raise CorpusError(
                f"{self.store.uri} has another corpus {self.name} (digest {taken.digest[:12]}, this one "
                f"{manifest.digest[:12]}); choose another name, or replace it (--replace)"
            )

    def _withdraw(self, folder: str) -> None:
        with suppress(StorageError, CorpusError):
            self.store.clean(self.name, self.store.find_manifest(self.name), spent=folder)

    def _write_files(self, folder: str) -> Manifest:
        writers = {split: self._write_split(split, folder) for split in self.counters}
        vocabulary = self.selection.vocabulary
        path = f"{folder}/vocabulary.arrow"
        with self.store.new_file(self.name, path) as sink:
            write_batch(sink, vocabulary.batch)
        annotations, contents = self.tables.write(self.store, self.name, folder, self.selection.ids)
        vectors = self._write_vectors(folder)
        if self.vectors:
            contents["vectors"] = self.vectors[0].digest
        texts = {split: writer.digest.hexadecimal for split, writer in writers.items()}
        return Manifest(
            name=self.name,
            digest=content_digest(vocabulary.digest, texts, contents),
            vocabulary=VocabularyRecord(**sink.record(path).model_dump(), size=len(vocabulary)),
            splits={split: self._summary(split, writer) for split, writer in writers.items()},
            annotations=annotations,
            vectors=vectors,
            sources=dict(self.sources),
            options=self.options,
            licence=self.licence,
            ideal=dict(self.ideal) if self.ideal else None,
        )

    def _write_split(self, split: str, folder: str) -> ShardWriter:
        counter = self.counters[split]
        ids = self.selection.ids.astype(token_type(len(self.selection.vocabulary)))
        shard_tokens = min(self.options.shard_tokens, counter.tokens)
        writer = ShardWriter(self.store, self.name, f"{folder}/{split}", shard_tokens, ids.dtype)
        for codes, numbers, lengths in counter.blocks():
            writer.add(ids[numbers][codes], lengths)
        writer.flush()
        return writer

    def _write_vectors(self, folder: str) -> VectorsRecord | None:
        if self.vectors is None:
            return None
        vectors, file, source = self.vectors
        path = f"{folder}/vectors.arrow"
        with self.store.new_file(self.name, path) as sink:
            write_batch(sink, vectors.batch)
        return VectorsRecord(
            **sink.record(path).model_dump(),
            width=vectors.values_VE.shape[1],
            known=int(vectors.known_V.sum()),
            seed=file.seed,
            source=source,
        )

    def _summary(self, split: str, writer: ShardWriter) -> SplitSummary:
        counter = self.counters[split]
        counts = counter.counts
        return SplitSummary(
            tokens=counter.tokens,
            sentences=counter.sentences,
            types=len(np.unique(self.selection.ids[counts > 0])),
            oov_tokens=int(counts[self.selection.outside].sum()),
            longest=counter.longest,
            shards=tuple(writer.shards),
        )
