"""Importing a corpus: text in, a vocabulary and shards of ids in a store out.

The text is read once (`reading`). Its words become numbers in temporary files (`counting`), what is known
of its sentences tables beside them (`annotating`); then the vocabulary is chosen (`selection`), the numbers
become ids, the ids shards (`shards`), and the manifest is put in place. Memory follows the number of
different words, not the length of the text.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from memtune.corpora.annotating import AnnotationTables
from memtune.corpora.cache import cache_folder
from memtune.corpora.counting import SplitCounter, WordTable
from memtune.corpora.division import Division
from memtune.corpora.location import Store
from memtune.corpora.manifest import SPLITS, FileRecord, ImportOptions, Manifest, SourceRecord, check_name
from memtune.corpora.reading import Progress, Source, SourceReader, check_sources
from memtune.corpora.selection import Selection, select
from memtune.corpora.sources import LineReader
from memtune.corpora.vectors import VectorFile, Vectors, read_vectors
from memtune.corpora.vocabulary import UNK
from memtune.corpora.writing import CorpusWriter
from memtune.errors import CorpusError

__all__ = ["OOV_WARNING_RATE", "Imported", "import_corpus"]

OOV_WARNING_RATE = 0.2
"""Share of a valid or test split's words outside the vocabulary above which an import warns."""


@dataclass(frozen=True)
class Imported:
    """The manifest now in the store, warnings for the user, whether the same content was there before."""

    manifest: Manifest
    warnings: tuple[str, ...]
    unchanged: bool


def import_corpus(
    name: str,
    sources: Mapping[str, Source] | Division,
    store: str | Path | Store,
    options: ImportOptions | None = None,
    *,
    licence: str | None = None,
    ideal: Mapping[str, float] | None = None,
    vectors: VectorFile | None = None,
    replace: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Imports the splits "train", "valid" and "test" as corpus `name`; train alone makes the vocabulary.

    A corpus with annotations may have some of the splits only, and a Division makes them of one file;
    `options.vocabulary` lets all make the vocabulary. A name that is taken keeps its corpus: the same content
    changes nothing, another one is a CorpusError unless `replace`. `licence` is a note and `ideal` the exact
    ideal perplexity per split; both go into the manifest. `vectors` are kept for the words of the vocabulary.
    Raises CorpusError for texts that cannot be read and StorageError for a store that cannot be written;
    either leaves what the store held.
    """
    place = Store.at(store)
    check_sources(check_name(name), sources)
    if vectors and not vectors.path.is_file():
        raise CorpusError(f"the file of vectors {vectors.path} does not exist")
    splits = SPLITS if isinstance(sources, Division) else tuple(split for split in SPLITS if split in sources)
    _check_ideal(name, splits, ideal)
    options = _complete(options or ImportOptions(), splits)
    place.check_writable()
    with ExitStack() as stack:
        table = WordTable()
        tables = AnnotationTables(table)
        stack.callback(tables.close)
        counters = {split: SplitCounter(table) for split in splits}
        for counter in counters.values():
            stack.callback(counter.close)
        reader = SourceReader(tables, options.skip_bad, progress)
        records = _read(reader, sources, counters)
        _check_annotations(name, tables, counters)
        counts = {split: counter.counts for split, counter in counters.items()}
        selection = select(table.words, counts, options, tables.asked)
        found = _vectors(vectors, selection, options, progress) if vectors else None
        writer = CorpusWriter(
            place, name, counters, tables, selection, found, options, records, licence, ideal
        )
        with place.lock(name, cache_folder(cache)):
            manifest, unchanged = writer.write(replace)
    return Imported(manifest, tuple(_warnings(manifest)), unchanged)


def _read(
    reader: SourceReader, sources: Mapping[str, Source] | Division, counters: Mapping[str, SplitCounter]
) -> dict[str, SourceRecord]:
    if isinstance(sources, Division):
        return reader.read_divided(sources, counters)
    return {split: reader.read(sources[split], counter, split) for split, counter in counters.items()}


def _vectors(
    file: VectorFile, selection: Selection, options: ImportOptions, progress: Progress | None
) -> tuple[Vectors, VectorFile, FileRecord]:
    reader = LineReader(file.path, skip_bad=options.skip_bad)

    def show(done: int) -> None:
        if progress:
            progress(done, file.path.stat().st_size, "vectors")

    vectors = read_vectors(reader, selection.vocabulary, file.seed, show)
    record = FileRecord(name=str(file.path), sha256=reader.sha256, bytes=reader.bytes_read)
    return vectors, file, record


def _complete(options: ImportOptions, splits: Sequence[str]) -> ImportOptions:
    """Where nothing is there to train on, all words make the vocabulary."""
    return options if "train" in splits else options.model_copy(update={"vocabulary": "all"})


def _check_annotations(name: str, tables: AnnotationTables, counters: Mapping[str, SplitCounter]) -> None:
    if len(counters) < len(SPLITS) and not tables:
        raise CorpusError(
            f"{name}: a corpus without annotations has the splits {', '.join(SPLITS)}; got "
            f"{', '.join(counters)}"
        )
    tables.check({split: counter.sentences for split, counter in counters.items()})


def _check_ideal(name: str, splits: Sequence[str], ideal: Mapping[str, float] | None) -> None:
    if set(ideal or ()) - set(splits):
        raise CorpusError(
            f"{name}: ideal perplexities for {', '.join(ideal or ())}, the splits are {', '.join(splits)}"
        )


def _warnings(manifest: Manifest) -> Iterator[str]:
    yield from manifest.remarks
    if vectors := manifest.vectors:
        missing = manifest.vocabulary.size - vectors.known
        yield f"{missing:,} of {manifest.vocabulary.size:,} tokens have no vector in {vectors.source.name}"
    for split in ("valid", "test"):
        if split not in manifest.splits:
            continue
        summary = manifest.splits[split]
        rate = summary.oov_tokens / (summary.tokens - summary.sentences)
        if rate > OOV_WARNING_RATE:
            yield (
                f"{rate:.1%} of the {split} words are outside the vocabulary and became {UNK}; "
                "is it the same language, tokenisation and case as the training text?"
            )
        training = manifest.sources.get("train")
        if training and not training.division and manifest.sources[split].sha256 == training.sha256:
            yield f"{split} is the training text itself: its perplexity will say nothing about new text"
