"""Import a corpus: text becomes a vocabulary and shards of ids in a store.

The import reads the text once (`import_sources`). It writes the words as numbers and the annotations as
tables to temporary files (`counted_text`). It splits the words into other tokens if that is asked for, and
selects the vocabulary (`token_stage`). Then it replaces the numbers by ids, writes the shards, and commits
the manifest last. Memory grows with the number of distinct words, not with the length of the text.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from memtune.arguments import check_type
from memtune.corpora.importing import token_stage
from memtune.corpora.importing.counted_text import CountedText
from memtune.corpora.importing.division import Division
from memtune.corpora.importing.import_sources import (
    ProgressCallback,
    Source,
    SourceReader,
    check_sources,
    list_sources,
)
from memtune.corpora.importing.import_warnings import find_corpus_warnings, find_text_warnings
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
    SplitSummary,
    TokeniserRecord,
    VectorsRecord,
    VocabularyRecord,
    check_name,
)
from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.corpora.store.vocabulary import VectorFile, Vectors, read_vectors
from memtune.corpora.text_blocks import TextFile
from memtune.errors import CorpusError
from memtune.storage.folder import Folder


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
    """Import a corpus; `memtune.import_corpus` has the terms of its arguments and its errors."""
    check_type("replace", replace, bool, "True or False")
    place = CorpusStore.open(store)
    splits = _check_arguments(name, sources, options, ideal, vectors)
    options = options or ImportOptions()
    if "train" not in splits:  # then all splits determine the vocabulary
        options = options.model_copy(update={"vocabulary": "all"})
    sources = token_stage.prepare_sources(sources, options)
    place.folder.check_writable()
    with ExitStack() as stack:
        text = CountedText(splits, stack, is_raw=token_stage.has_raw_text(sources))
        records = SourceReader(text, options.skip_bad, progress).read(sources)
        _check_text(name, text, options, vectors)
        spelled = text.table.words if text.is_raw else token_stage.spell_words(text.table.words, options)
        units = token_stage.count_units(text, spelled, options.tokens)
        has_files = any(isinstance(each, TextFile) for each in list_sources(sources))
        is_generated = ideal is not None or not has_files
        needs_words = bool(text.annotations or vectors)
        warnings = list(find_text_warnings(text, options, is_generated=is_generated, needs_words=needs_words))
        text = token_stage.split_words(text, spelled, options.tokens, stack)
        selection = token_stage.select_tokens(text, spelled, options)
        found = _read_vectors(vectors, selection, options, progress) if vectors else None
        about = {
            "options": options,
            "sources": records,
            "licence": licence,
            "ideal": dict(ideal or {}) or None,
        }
        writer = _CorpusWriter(place, name, text, units, selection, found, about)
        with place.lock(name, resolve_cache_folder(cache)):
            manifest, unchanged = writer.write(replace)
    return ImportResult(manifest, (*find_corpus_warnings(manifest), *warnings), unchanged)


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


def _check_text(name: str, text: CountedText, options: ImportOptions, vectors: VectorFile | None) -> None:
    """Refuse what was read where splits or trees are missing, or split words have annotations or vectors."""
    if len(text.counters) < len(SPLITS) and not text.annotations:
        raise CorpusError(
            f"{name}: a corpus without annotations has the splits {', '.join(SPLITS)}; got "
            f"{', '.join(text.counters)}"
        )
    for split, counter in text.counters.items():
        text.annotations.check_trees(split, counter.sentence_count)
    if options.tokens != "words" and (text.annotations or vectors):
        raise CorpusError(
            f"{name}: annotations and vectors belong to words; import the text with --tokens words"
        )


def _read_vectors(
    file: VectorFile,
    selection: token_stage.VocabularySelection,
    options: ImportOptions,
    progress: ProgressCallback | None,
) -> tuple[Vectors, dict[str, Any]]:
    """The vectors of the vocabulary, and what the manifest says of them besides their file."""
    with closing(LineReader(file.path, skip_bad=options.skip_bad)) as reader:
        size = reader.size_bytes

        def show(done: int) -> None:
            if progress:
                progress(done, size, "vectors")

        vectors = read_vectors(reader, selection.vocabulary, file.seed, show)
        source = FileRecord(name=str(file.path), sha256=reader.sha256, bytes=reader.bytes_read)
    width, known = vectors.values_VE.shape[1], int(vectors.known_V.sum())
    return vectors, {"width": width, "known": known, "seed": file.seed, "source": source}


@dataclass(frozen=True)
class _CorpusWriter:
    """Writes the result of one import into the store."""

    store: CorpusStore
    name: str
    text: CountedText
    units: Mapping[str, Mapping[str, int]]
    """Words and bytes of each split's text."""
    selection: token_stage.VocabularySelection
    vectors: tuple[Vectors, dict[str, Any]] | None
    about: Mapping[str, Any]
    """Fields of the manifest that come from the arguments and the sources."""

    def write(self, replace: bool) -> tuple[Manifest, bool]:
        """Returns the manifest that is in the store afterwards, and whether the content was already stored.

        The caller holds the import lock. Raises CorpusError if the name holds different content and `replace`
        is false.
        """
        self._find_existing(replace)  # before the files are written, where it cannot be read
        folder = f"data-{uuid4().hex[:16]}"
        with self.store.create_folder(self.name, folder) as corpus:
            manifest = self._write_files(corpus, folder)
            # Now: in an object store another machine may have imported the name meanwhile.
            existing = self._find_existing(replace)
            if not existing or replace:
                self.store.commit(manifest)
            elif existing.digest != manifest.digest:
                raise CorpusError(
                    f"{self.store.folder} already has a different corpus {self.name} (digest "
                    f"{existing.digest[:12]}, new digest {manifest.digest[:12]}); choose another name, "
                    "or replace it (--replace)"
                )
        if existing and not replace:
            self.store.clean(self.name, folder)
            return existing, True
        self.store.clean(self.name, existing.folder if existing else None)
        return manifest, False

    def _find_existing(self, replace: bool) -> Manifest | None:
        try:
            return self.store.find_manifest(self.name)
        except CorpusError:
            if not replace:
                raise
            return None

    def _write_files(self, corpus: Folder, folder: str) -> Manifest:
        vocabulary = self.selection.vocabulary
        splits, texts = {}, {}
        for split in self.text.counters:
            splits[split], texts[split] = self._write_split(split, corpus, folder)
        file = write_batches(corpus, f"{folder}/vocabulary.arrow", [vocabulary.batch])
        annotations, contents = self.text.annotations.write(corpus, folder, self.selection.ids)
        vectors, tokeniser = None, None
        if self.vectors:
            found, described = self.vectors
            stored = write_batches(corpus, f"{folder}/vectors.arrow", [found.batch])
            vectors = VectorsRecord(**stored, **described)
            contents["vectors"] = found.digest
        if made := self.text.tokeniser:
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
            **self.about,
        )

    def _write_split(self, split: str, corpus: Folder, folder: str) -> tuple[SplitSummary, list[str]]:
        """Returns the summary of the split and the digests of its tokens."""
        counter = self.text.counters[split]
        ids = self.selection.ids.astype(choose_id_type(len(self.selection.vocabulary)))
        shard_tokens = min(self.about["options"].shard_tokens, counter.token_count)
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
            shards=tuple(writer.shards),
            **self.units[split],
        )
        return summary, writer.digest.hexdigests
