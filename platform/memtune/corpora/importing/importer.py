"""Import a corpus: text becomes a vocabulary and shards of ids in a store.

The import reads the text once (`source_reader`). It writes the words as numbers and the annotations as tables
to temporary files (`counted_text`). It splits the words into other tokens if that is asked for
(`token_stage`). Then it selects the vocabulary (`vocabulary_selection`), replaces the numbers by ids, writes
the shards, and commits the manifest last (`corpus_writer`). Memory grows with the number of distinct words,
not with the length of the text.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from memtune.arguments import check_type
from memtune.corpora.importing import token_stage
from memtune.corpora.importing.corpus_writer import CorpusWriter
from memtune.corpora.importing.counted_text import AnnotationTables, SplitCounter, WordTable
from memtune.corpora.importing.import_sources import Division
from memtune.corpora.importing.import_warnings import find_text_warnings, suggest_size
from memtune.corpora.importing.source_reader import ProgressCallback, Source, SourceReader, check_sources
from memtune.corpora.importing.vocabulary_selection import VocabularySelection
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import SourceKind, find_kind
from memtune.corpora.store.corpus_store import CorpusStore
from memtune.corpora.store.manifest import (
    SPLITS,
    FileRecord,
    ImportOptions,
    Manifest,
    check_name,
)
from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.corpora.store.vocabulary import UNK, VectorFile, Vectors, read_vectors
from memtune.corpora.text_blocks import TextFile
from memtune.corpora.tokenisation.tokeniser import parse_token_choice
from memtune.errors import CorpusError
from memtune.number_format import format_count

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
        reader = SourceReader(tables, options.skip_bad, progress)
        if isinstance(sources, Division):
            records = reader.read_division(sources, counters)
        else:
            records = {
                split: reader.read(sources[split], counter, split) for split, counter in counters.items()
            }
        if len(splits) < len(SPLITS) and not tables:
            raise CorpusError(
                f"{name}: a corpus without annotations has the splits {', '.join(SPLITS)}; got "
                f"{', '.join(splits)}"
            )
        tables.check({split: counter.sentence_count for split, counter in counters.items()})
        token_stage.check_tokens(name, choice, tables, vectors)
        is_raw = token_stage.has_raw_text(sources)
        units = token_stage.count_units(counters, table, options, is_raw)
        has_files = isinstance(sources, Division) or any(
            isinstance(each, TextFile) for each in sources.values()
        )
        is_generated = ideal is not None or not has_files
        warnings = [] if is_raw else list(find_text_warnings(table.words, counters, options, is_generated))
        tokens = token_stage.split_words(table, counters, options, choice, is_raw, stack)
        selection = token_stage.select_tokens(tokens, options, choice, tables)
        found = _read_vectors(vectors, selection, options, progress) if vectors else None
        writer = CorpusWriter(
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
    if vectors and find_kind(vectors.path, "the file of vectors") is SourceKind.FOLDER:
        raise CorpusError(f"the file of vectors {vectors.path} is a folder")
    splits = SPLITS if isinstance(sources, Division) else tuple(split for split in SPLITS if split in sources)
    if set(ideal or ()) - set(splits):
        raise CorpusError(
            f"{name}: ideal perplexities for {', '.join(ideal or ())}, the splits are {', '.join(splits)}"
        )
    return splits


def _read_vectors(
    file: VectorFile,
    selection: VocabularySelection,
    options: ImportOptions,
    progress: ProgressCallback | None,
) -> tuple[Vectors, VectorFile, FileRecord]:
    with closing(LineReader(file.path, skip_bad=options.skip_bad)) as reader:

        def show(done: int) -> None:
            if progress:
                progress(done, reader.size_bytes, "vectors")

        vectors = read_vectors(reader, selection.vocabulary, file.seed, show)
        record = FileRecord(name=str(file.path), sha256=reader.sha256, bytes=reader.bytes_read)
    return vectors, file, record


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
