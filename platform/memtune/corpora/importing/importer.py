"""Import a corpus: text becomes a vocabulary and shards of ids in a store.

The import reads the text once (`source_reader`). It writes the words as numbers and the annotations as tables
to temporary files (`counted_text`). It splits the words into other tokens if that is asked for
(`token_stage`). Then it selects the vocabulary (`vocabulary_selection`), replaces the numbers by ids, writes
the shards, and commits the manifest last. Memory grows with the number of distinct words, not with the length
of the text.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from memtune.arguments import check_type
from memtune.corpora.importing import token_stage
from memtune.corpora.importing.counted_text import AnnotationTables, SplitCounter, WordTable
from memtune.corpora.importing.import_sources import Division
from memtune.corpora.importing.import_warnings import find_text_warnings, suggest_size
from memtune.corpora.importing.source_reader import ProgressCallback, Source, SourceReader, check_sources
from memtune.corpora.importing.token_stage import CountedTokens
from memtune.corpora.importing.vocabulary_selection import VocabularySelection
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import SourceFile
from memtune.corpora.store.arrow_files import ShardWriter, choose_id_type
from memtune.corpora.store.content_checks import compute_content_digest
from memtune.corpora.store.corpus_store import CorpusStore, describe_file, write_batches
from memtune.corpora.store.manifest import (
    SPLITS,
    FileRecord,
    ImportOptions,
    Manifest,
    SourceRecord,
    SplitSummary,
    TokeniserRecord,
    VectorsRecord,
    VocabularyRecord,
    check_name,
)
from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.corpora.store.vocabulary import UNK, VectorFile, Vectors, read_vectors
from memtune.corpora.text_blocks import TextFile
from memtune.corpora.tokenisation.tokeniser import parse_token_choice
from memtune.errors import CorpusError, StorageError
from memtune.number_format import format_count
from memtune.storage.folder import Folder

OOV_WARNING_RATE = 0.2
"""Share of a valid or test split's words outside the vocabulary above which an import warns."""
RECORD_NAME = re.compile(r"\.(jsonl|csv)(\.(gz|bz2|zst|xz))?$", re.IGNORECASE)
"""Files of records, which are text too, by name; the format that reads their fields."""


@dataclass(frozen=True)
class ImportResult:
    """The manifest in the store, warnings for the user, and whether the same content was already stored."""

    manifest: Manifest
    warnings: tuple[str, ...]
    unchanged: bool


def import_corpus(
    name: str,
    sources: Mapping[str, Source] | Division,
    store: str | Path | CorpusStore | None = None,
    options: ImportOptions | None = None,
    *,
    licence: str | None = None,
    ideal: Mapping[str, float] | None = None,
    vectors: VectorFile | None = None,
    replace: bool = False,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> ImportResult:
    """Import a corpus as `memtune.import_corpus` does, printing nothing.

    `progress` is called with the bytes read, all bytes of the file or None, and the name of the split.
    """
    place = CorpusStore.open(store)
    splits = _check_arguments(name, sources, options, ideal, vectors)
    options = options or ImportOptions()
    if "train" not in splits:  # then all splits determine the vocabulary
        options = options.model_copy(update={"vocabulary": "all"})
    choice = parse_token_choice(options.tokens)
    token_stage.check_choice(choice, options)
    sources = token_stage.set_raw_units(sources, choice)
    place.folder.check_writable()
    with ExitStack() as stack:
        table = WordTable()
        tables = AnnotationTables(table)
        stack.callback(tables.close)
        counters = {split: SplitCounter(table) for split in splits}
        for counter in counters.values():
            stack.callback(counter.close)
        records = _read_splits(SourceReader(tables, options.skip_bad, progress), sources, counters)
        if len(splits) < len(SPLITS) and not tables:
            raise CorpusError(
                f"{name}: a corpus without annotations has the splits {', '.join(SPLITS)}; got "
                f"{', '.join(splits)}"
            )
        tables.check({split: counter.sentence_count for split, counter in counters.items()})
        token_stage.check_tokens(name, choice, tables, vectors)
        is_raw = token_stage.has_raw_text(sources)
        units = token_stage.count_units(counters, table, options, choice, is_raw)
        has_files = isinstance(sources, Division) or any(
            isinstance(each, TextFile) for each in sources.values()
        )
        is_generated = ideal is not None or not has_files
        warnings = [] if is_raw else list(find_text_warnings(table.words, counters, options, is_generated))
        tokens = token_stage.split_words(table, counters, options, choice, is_raw, stack)
        selection = token_stage.select_tokens(tokens, options, choice, tables)
        found = _read_vectors(vectors, selection, options, progress) if vectors else None
        writer = _CorpusWriter(
            place, name, tokens, tables, selection, found, options, records, licence, ideal, units
        )
        with place.lock(name, resolve_cache_folder(cache)):
            manifest, unchanged = writer.write(replace)
    return ImportResult(manifest, (*_collect_warnings(manifest), *warnings), unchanged)


def _check_arguments(
    name: str,
    sources: Mapping[str, Source] | Division,
    options: ImportOptions | None,
    ideal: Mapping[str, float] | None,
    vectors: VectorFile | None,
) -> tuple[str, ...]:
    """Refuse arguments that cannot be imported, and return the names of the splits that can."""
    if options is not None:
        check_type("options", options, ImportOptions, "ImportOptions, such as ImportOptions(min_count=2)")
    check_sources(check_name(name), sources)
    if vectors and SourceFile(vectors.path, "the file of vectors").is_folder:
        raise CorpusError(f"the file of vectors {vectors.path} is a folder")
    splits = SPLITS if isinstance(sources, Division) else tuple(split for split in SPLITS if split in sources)
    if set(ideal or ()) - set(splits):
        raise CorpusError(
            f"{name}: ideal perplexities for {', '.join(ideal or ())}, the splits are {', '.join(splits)}"
        )
    return splits


def _read_splits(
    reader: SourceReader, sources: Mapping[str, Source] | Division, counters: Mapping[str, SplitCounter]
) -> dict[str, SourceRecord]:
    if isinstance(sources, Division):
        return reader.read_division(sources, counters)
    return {split: reader.read(sources[split], counter, split) for split, counter in counters.items()}


def _read_vectors(
    file: VectorFile,
    selection: VocabularySelection,
    options: ImportOptions,
    progress: ProgressCallback | None,
) -> tuple[Vectors, dict[str, Any]]:
    """The vectors of the vocabulary, and what the manifest says of them besides their file."""
    with closing(LineReader(file.path, skip_bad=options.skip_bad)) as reader:

        def show(done: int) -> None:
            if progress:
                progress(done, reader.size_bytes, "vectors")

        vectors = read_vectors(reader, selection.vocabulary, file.seed, show)
        source = FileRecord(name=str(file.path), sha256=reader.sha256, bytes=reader.bytes_read)
    width, known = vectors.values_VE.shape[1], int(vectors.known_V.sum())
    return vectors, {"width": width, "known": known, "seed": file.seed, "source": source}


@dataclass(frozen=True)
class _CorpusWriter:
    """Writes the result of one import into the store."""

    store: CorpusStore
    name: str
    tokens: CountedTokens
    tables: AnnotationTables
    selection: VocabularySelection
    vectors: tuple[Vectors, dict[str, Any]] | None
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
        corpus, folder = self.store.open_folder(self.name), f"data-{uuid4().hex[:16]}"
        (corpus / folder).create()
        try:
            manifest = self._write_files(corpus, folder)
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

    def _write_files(self, corpus: Folder, folder: str) -> Manifest:
        vocabulary = self.selection.vocabulary
        splits, texts = {}, {}
        for split in self.tokens.counters:
            splits[split], texts[split] = self._write_split(split, corpus, folder)
        file = write_batches(corpus, f"{folder}/vocabulary.arrow", [vocabulary.batch])
        annotations, contents = self.tables.write(corpus, folder, self.selection.ids)
        vectors, tokeniser = None, None
        if self.vectors:
            found, described = self.vectors
            stored = write_batches(corpus, f"{folder}/vectors.arrow", [found.batch])
            vectors = VectorsRecord(**stored, **described)
            contents["vectors"] = found.digest
        if made := self.tokens.tokeniser:
            path = f"{folder}/tokeniser.json"
            with corpus.create_file(path) as sink:
                sink.write(made.document.encode())
            tokeniser = TokeniserRecord(**describe_file(path, sink), kind=made.kind)
            contents["tokeniser"] = [tokeniser.kind, tokeniser.sha256]
        return Manifest(
            name=self.name,
            digest=compute_content_digest(vocabulary.digest, texts, contents),
            vocabulary=VocabularyRecord(**file, size=len(vocabulary)),
            splits=splits,
            annotations=annotations,
            vectors=vectors,
            tokeniser=tokeniser,
            sources=dict(self.sources),
            options=self.options,
            licence=self.licence,
            ideal=dict(self.ideal) if self.ideal else None,
        )

    def _write_split(self, split: str, corpus: Folder, folder: str) -> tuple[SplitSummary, tuple[str, str]]:
        """Returns the summary of the split and the digests of its tokens."""
        counter = self.tokens.counters[split]
        ids = self.selection.ids.astype(choose_id_type(len(self.selection.vocabulary)))
        shard_tokens = min(self.options.shard_tokens, counter.token_count)
        writer = ShardWriter(corpus, f"{folder}/{split}", shard_tokens)
        for numbers, lengths in counter.read_blocks():
            writer.add(ids[numbers], lengths)
        writer.flush()
        summary = SplitSummary(
            tokens=counter.token_count,
            sentences=counter.sentence_count,
            types=len(np.unique(self.selection.ids[counter.counts > 0])),
            oov_tokens=int(counter.counts[self.selection.outside_mask].sum()),
            longest=counter.longest_sentence_tokens,
            words=self.units[split][0],
            bytes=self.units[split][1],
            shards=tuple(writer.shards),
        )
        return summary, writer.digest.hexdigests


def _collect_warnings(manifest: Manifest) -> Iterator[str]:
    yield from manifest.remarks
    for file in sorted({record.name for record in manifest.sources.values() if record.format == "text"}):
        if found := RECORD_NAME.search(file):
            yield (
                f"{file} was read as text, with the names and signs of its records; --format "
                f"{found[1].lower()} reads one field of them"
            )
    if vectors := manifest.vectors:
        missing = manifest.vocabulary.size - vectors.known
        tokens, have = format_count(manifest.vocabulary.size, "token"), "has" if missing == 1 else "have"
        yield f"{missing:,} of {tokens} {have} no vector in {vectors.source.name}"
    for split in ("valid", "test"):
        if split not in manifest.splits:
            continue
        rate = manifest.splits[split].oov_rate
        if rate > OOV_WARNING_RATE:
            yield (
                f"{rate:.1%} of the {split} words are outside the vocabulary and became {UNK}; "
                "check that language, tokenisation and case are those of the training text; --tokens "
                f"bpe:{suggest_size(manifest.vocabulary.size)} has no unknown words"
            )
        training = manifest.sources.get("train")
        if training and not training.division and manifest.sources[split].sha256 == training.sha256:
            yield f"the {split} split is the training text: its perplexity does not measure generalisation"
