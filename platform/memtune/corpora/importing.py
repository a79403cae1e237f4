"""Importing a corpus: text in, a vocabulary and shards of ids in a store out.

The text is read once. Its words become numbers in temporary files (`counting`); then the vocabulary is
chosen (`selection`), the numbers become ids, the ids shards (`shards`), and the manifest is put in place.
Memory follows the number of different words, not the length of the text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from memtune.corpora.cache import cache_folder
from memtune.corpora.counting import SplitCounter, WordTable
from memtune.corpora.formats import FORMATS
from memtune.corpora.location import Store
from memtune.corpora.manifest import SPLITS, ImportOptions, Manifest, SourceRecord, check_name
from memtune.corpora.selection import select
from memtune.corpora.sources import LineReader, Source, TextFile, sentence_blocks
from memtune.corpora.vocabulary import UNK
from memtune.corpora.writing import CorpusWriter
from memtune.errors import CorpusError, did_you_mean

__all__ = ["OOV_WARNING_RATE", "Imported", "Progress", "import_corpus"]

OOV_WARNING_RATE = 0.2
"""Share of a valid or test split's words outside the vocabulary above which an import warns."""

Progress = Callable[[int, int | None, str], None]
"""Called with bytes done, bytes in all (None if unknown) and the split."""


@dataclass(frozen=True)
class Imported:
    """The manifest now in the store, warnings for the user, whether the same content was there before."""

    manifest: Manifest
    warnings: tuple[str, ...]
    unchanged: bool


def import_corpus(
    name: str,
    sources: Mapping[str, Source],
    store: str | Path | Store,
    options: ImportOptions | None = None,
    *,
    licence: str | None = None,
    ideal: Mapping[str, float] | None = None,
    replace: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Imports the splits "train", "valid" and "test" as corpus `name`; train alone makes the vocabulary.

    A name that is taken keeps its corpus: the same content changes nothing, another one is a CorpusError
    unless `replace`. `licence` is a note and `ideal` the exact ideal perplexity per split; both go into the
    manifest. Raises CorpusError for texts that cannot be read and StorageError for a store that cannot be
    written; either leaves what the store held.
    """
    options = options or ImportOptions()
    place = Store.at(store)
    _check(check_name(name), sources, ideal)
    place.check_writable()
    with ExitStack() as stack:
        table = WordTable()
        counters = {split: SplitCounter(table) for split in SPLITS}
        for counter in counters.values():
            stack.callback(counter.close)
        records = {split: _count(sources[split], counters[split], split, progress) for split in SPLITS}
        selection = select(
            table.words, {split: counter.counts for split, counter in counters.items()}, options
        )
        writer = CorpusWriter(place, name, counters, selection, options, records, licence, ideal)
        with place.lock(name, cache_folder(cache)):
            manifest, unchanged = writer.write(replace)
    return Imported(manifest, tuple(_warnings(manifest)), unchanged)


def _check(name: str, sources: Mapping[str, Source], ideal: Mapping[str, float] | None) -> None:
    if set(sources) != set(SPLITS) or set(ideal or ()) - set(SPLITS):
        raise CorpusError(
            f"{name}: a corpus has the splits {', '.join(SPLITS)}; got {', '.join(sources) or 'none'}"
            + (f" and ideal perplexities for {', '.join(ideal)}" if ideal else "")
        )
    for split, source in sources.items():
        if not isinstance(source, TextFile):
            continue
        if source.format not in FORMATS:
            raise CorpusError(f'no format "{source.format}"; {did_you_mean(source.format, FORMATS)}')
        if not source.path.is_file():
            found = "is a folder" if source.path.is_dir() else "does not exist"
            raise CorpusError(f"the {split} file {source.path} {found}")


def _count(source: Source, counter: SplitCounter, split: str, progress: Progress | None) -> SourceRecord:
    """Counts a whole split and says what it was."""
    if isinstance(source, TextFile):
        record = _count_file(source, counter, split, progress)
    else:
        record = _count_sentences(source, counter, split, progress)
    counter.merge()
    if counter.tokens == counter.sentences:
        raise CorpusError(f"the {split} split is empty: no word in {record.name}")
    return record


def _count_file(
    source: TextFile, counter: SplitCounter, split: str, progress: Progress | None
) -> SourceRecord:
    reader = LineReader(source.path)
    size = source.path.stat().st_size
    for block in FORMATS[source.format](reader):
        counter.add(block)
        if progress:
            progress(reader.bytes_read, size, split)
    return SourceRecord(
        name=str(source.path), format=source.format, sha256=reader.sha256, bytes=reader.bytes_read
    )


def _count_sentences(
    sentences: Iterable[Sequence[str]], counter: SplitCounter, split: str, progress: Progress | None
) -> SourceRecord:
    text = sha256()
    size = 0

    def lines() -> Iterator[Sequence[str]]:
        nonlocal size
        for sentence in sentences:
            line = f"{' '.join(sentence)}\n".encode()
            text.update(line)
            size += len(line)
            yield sentence

    for block in sentence_blocks(lines()):
        counter.add(block)
        if progress:
            progress(size, None, split)
    return SourceRecord(name="sentences", format="sentences", sha256=text.hexdigest(), bytes=size)


def _warnings(manifest: Manifest) -> Iterator[str]:
    for split in ("valid", "test"):
        summary = manifest.splits[split]
        rate = summary.oov_tokens / (summary.tokens - summary.sentences)
        if rate > OOV_WARNING_RATE:
            yield (
                f"{rate:.1%} of the {split} words are outside the vocabulary and became {UNK}; "
                "is it the same language, tokenisation and case as the training text?"
            )
        if manifest.sources[split].sha256 == manifest.sources["train"].sha256:
            yield f"{split} is the training text itself: its perplexity will say nothing about new text"
