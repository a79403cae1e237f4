"""Write a corpus from counted text and a selected vocabulary: the data files, then one atomic manifest."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from memtune.corpora.importing.counted_text import AnnotationTables
from memtune.corpora.importing.token_stage import CountedTokens
from memtune.corpora.importing.vocabulary_selection import VocabularySelection
from memtune.corpora.store.arrow_files import ShardWriter, choose_id_type
from memtune.corpora.store.content_checks import compute_content_digest
from memtune.corpora.store.corpus_store import CorpusStore, describe_file
from memtune.corpora.store.manifest import (
    FileRecord,
    ImportOptions,
    Manifest,
    SourceRecord,
    SplitSummary,
    TokeniserRecord,
    VectorsRecord,
    VocabularyRecord,
)
from memtune.corpora.store.vocabulary import VectorFile, Vectors
from memtune.errors import CorpusError, StorageError


@dataclass(frozen=True)
class CorpusWriter:
    """Writes the result of one import into the store."""

    store: CorpusStore
    name: str
    tokens: CountedTokens
    tables: AnnotationTables
    selection: VocabularySelection
    vectors: tuple[Vectors, VectorFile, FileRecord] | None
    options: ImportOptions
    sources: Mapping[str, SourceRecord]
    licence: str | None
    ideal: Mapping[str, float] | None
    units: Mapping[str, tuple[int, int]]
    """Words and bytes of each split's text."""

    def write(self, replace: bool) -> tuple[Manifest, bool]:
        """Returns the manifest that is in the store afterwards, and whether the content was already stored.

        The caller holds the import lock. Raises CorpusError if the name holds different content and `replace`
        is false.
        """
        try:
            existing = self.store.find_manifest(self.name)
        except CorpusError:
            if not replace:
                raise
            existing = None
        folder = self.store.create_folder(self.name)
        try:
            manifest = self._write_files(folder)
            if not existing or replace:
                self.store.commit(manifest)
            elif existing.digest != manifest.digest:
                raise CorpusError(
                    f"{self.store.uri} already has a different corpus {self.name} (digest "
                    f"{existing.digest[:12]}, new digest {manifest.digest[:12]}); choose another name, "
                    "or replace it (--replace)"
                )
        except BaseException:
            with suppress(StorageError, CorpusError):  # the first error is the one that the user needs
                self.store.clean(self.name, self.store.find_manifest(self.name), obsolete=folder)
            raise
        if existing and not replace:
            self.store.clean(self.name, existing, obsolete=folder)
            return existing, True
        self.store.clean(self.name, manifest, obsolete=existing.folder if existing else None)
        return manifest, False

    def _write_files(self, folder: str) -> Manifest:
        writers = {split: self._write_split(split, folder) for split in self.tokens.counters}
        vocabulary = self.selection.vocabulary
        file = self.store.write_batch(self.name, f"{folder}/vocabulary.arrow", vocabulary.batch)
        annotations, contents = self.tables.write(self.store, self.name, folder, self.selection.ids)
        vectors = self._write_vectors(folder)
        if self.vectors:
            contents["vectors"] = self.vectors[0].digest
        tokeniser = None
        if made := self.tokens.tokeniser:
            path = f"{folder}/tokeniser.json"
            with self.store.create_file(self.name, path) as sink:
                sink.write(made.document.encode())
            tokeniser = TokeniserRecord(**describe_file(path, sink), kind=made.kind)
            contents["tokeniser"] = [tokeniser.kind, tokeniser.sha256]
        texts = {split: writer.digest.hexdigests for split, writer in writers.items()}
        return Manifest(
            name=self.name,
            digest=compute_content_digest(vocabulary.digest, texts, contents),
            vocabulary=VocabularyRecord(**file, size=len(vocabulary)),
            splits={split: self._summarise_split(split, writer) for split, writer in writers.items()},
            annotations=annotations,
            vectors=vectors,
            tokeniser=tokeniser,
            sources=dict(self.sources),
            options=self.options,
            licence=self.licence,
            ideal=dict(self.ideal) if self.ideal else None,
        )

    def _write_split(self, split: str, folder: str) -> ShardWriter:
        counter = self.tokens.counters[split]
        ids = self.selection.ids.astype(choose_id_type(len(self.selection.vocabulary)))
        shard_tokens = min(self.options.shard_tokens, counter.token_count)
        writer = ShardWriter(self.store, self.name, f"{folder}/{split}", shard_tokens)
        for codes, numbers, lengths in counter.read_blocks():
            writer.add(ids[numbers][codes], lengths)
        writer.flush()
        return writer

    def _write_vectors(self, folder: str) -> VectorsRecord | None:
        if self.vectors is None:
            return None
        vectors, file, source = self.vectors
        return VectorsRecord(
            **self.store.write_batch(self.name, f"{folder}/vectors.arrow", vectors.batch),
            width=vectors.values_VE.shape[1],
            known=int(vectors.known_V.sum()),
            seed=file.seed,
            source=source,
        )

    def _summarise_split(self, split: str, writer: ShardWriter) -> SplitSummary:
        counter = self.tokens.counters[split]
        counts = counter.counts
        return SplitSummary(
            tokens=counter.token_count,
            sentences=counter.sentence_count,
            types=len(np.unique(self.selection.ids[counts > 0])),
            oov_tokens=int(counts[self.selection.outside_mask].sum()),
            longest=counter.longest_sentence_tokens,
            words=self.units[split][0],
            bytes=self.units[split][1],
            shards=tuple(writer.shards),
        )
