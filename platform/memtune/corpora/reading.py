"""Reading the sources of an import: words are counted, annotations put away, bytes hashed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

from memtune.corpora.annotating import AnnotationTables
from memtune.corpora.counting import SplitCounter
from memtune.corpora.division import Division, divided
from memtune.corpora.examples import Example, example_blocks
from memtune.corpora.formats import FORMATS
from memtune.corpora.manifest import SPLITS, FileRecord, SourceRecord
from memtune.corpora.sources import Block, Format, LineReader, TextFile
from memtune.errors import CorpusError, did_you_mean
from memtune.values import Value, digest, parse

__all__ = ["Progress", "Source", "SourceReader", "check_sources"]

Progress = Callable[[int, int | None, str], None]
"""Called with bytes done, bytes in all (None if unknown) and the split."""

Source = TextFile | Iterable[Sequence[str] | Example]
"""What a split is read from: a file, or sentences as sequences of words without `<eos>`, annotated or not."""


def check_sources(name: str, sources: Mapping[str, Source] | Division) -> None:
    """A CorpusError for splits, formats, options and files that cannot be, before anything is read."""
    if isinstance(sources, Division):
        _check_file("train", sources.source)
        return
    annotated = any(
        not isinstance(source, TextFile) or _format(source).annotations for source in sources.values()
    )
    if not sources or set(sources) - set(SPLITS) or (len(sources) < len(SPLITS) and not annotated):
        raise CorpusError(
            f"{name}: a text needs --train, --valid and --test, or --train with --split 80,10,10; got "
            f"{', '.join(sources) or 'none of them'}; questions and labels may be of some splits only"
        )
    for split, source in sources.items():
        if isinstance(source, TextFile):
            _check_file(split, source)


def _check_file(split: str, source: TextFile) -> None:
    _options(source)
    folder = source.path.is_dir()
    if folder and not _format(source).folder:
        raise CorpusError(f"the {split} file {source.path} is a folder")
    if not folder and not source.path.is_file():
        raise CorpusError(f"the {split} file {source.path} does not exist")


@dataclass(frozen=True)
class SourceReader:
    """Reads the sources of one import."""

    tables: AnnotationTables
    skip_bad: bool
    progress: Progress | None

    def read(self, source: Source, counter: SplitCounter, split: str) -> SourceRecord:
        """Counts a whole split and says what it was."""
        if isinstance(source, TextFile):
            reader = LineReader(source.path, skip_bad=self.skip_bad)
            for block in self._blocks(source, reader, split):
                self._add(block, counter, split)
            record = _record(source, reader)
        else:
            record = self._read_sentences(source, counter, split)
        counter.merge()
        if not counter.words:
            raise CorpusError(f"the {split} split is empty: no word in {record.name}")
        return record

    def read_divided(
        self, division: Division, counters: Mapping[str, SplitCounter]
    ) -> dict[str, SourceRecord]:
        """Counts all splits of a file that is divided among them and says what it was."""
        reader = LineReader(division.source.path, skip_bad=self.skip_bad)
        for block in self._blocks(division.source, reader, "all"):
            for split, part in divided(block, division):
                self._add(part, counters[split], split)
        record = _record(division.source, reader)
        _finish_divided(division, counters)
        total = sum(division.shares.values())
        return {
            split: record.model_copy(
                update={"division": f"{division.shares[split] / total:.3g} of it, seed {division.seed}"}
            )
            for split in counters
        }

    def _blocks(self, source: TextFile, reader: LineReader, split: str) -> Iterator[Block]:
        size = _size(source.path)
        for block in _format(source).read(reader, _options(source)):
            yield block
            if self.progress:
                self.progress(_bytes_read(reader), size, split)
        reader.check_bad()

    def _read_sentences(
        self, sentences: Iterable[Sequence[str] | Example], counter: SplitCounter, split: str
    ) -> SourceRecord:
        text = sha256()
        size = 0

        def examples() -> Iterator[Example]:
            nonlocal size
            for item in sentences:
                example = item if isinstance(item, Example) else Example((item,))
                for sentence in example.sentences:
                    line = f"{' '.join(sentence)}\n".encode()
                    text.update(line)
                    size += len(line)
                yield example

        for block in example_blocks(examples()):
            self._add(block, counter, split)
            if self.progress:
                self.progress(size, None, split)
        return SourceRecord(name="sentences", format="sentences", sha256=text.hexdigest(), bytes=size)

    def _add(self, block: Block, counter: SplitCounter, split: str) -> None:
        self.tables.add(split, block.annotations, counter.sentences)
        counter.add(block)


def _finish_divided(division: Division, counters: Mapping[str, SplitCounter]) -> None:
    path = division.source.path
    sentences = sum(counter.sentences for counter in counters.values())
    why = f"no word in {path}"
    if any(counter.words for counter in counters.values()):
        why = (
            f"by seed {division.seed} none of the {sentences:,} sentences of {path} fell to it; give it a "
            "larger share in --split, or take another --split-seed"
        )
    for split, counter in counters.items():
        counter.merge()
        if not counter.words:
            raise CorpusError(f"the {split} split is empty: {why}")


def _record(source: TextFile, reader: LineReader) -> SourceRecord:
    return SourceRecord(
        name=str(source.path),
        format=source.format,
        sha256=_sha256(reader),
        bytes=_bytes_read(reader),
        options=_options(source).model_dump(mode="json"),
        beside=tuple(
            FileRecord(name=str(other.path), sha256=other.sha256, bytes=other.bytes_read)
            for other in reader.besides
        ),
        skipped=reader.skipped,
        notes=tuple(reader.notes),
    )


def _format(source: TextFile) -> Format:
    if source.format not in FORMATS:
        raise CorpusError(f'no format "{source.format}"; {did_you_mean(source.format, FORMATS)}')
    return FORMATS[source.format]


def _options(source: TextFile) -> Value:
    options: Value = parse(_format(source).options, dict(source.options), f"format {source.format}")
    return options


def _readers(reader: LineReader) -> Iterator[LineReader]:
    return chain((reader,), reader.besides)


def _bytes_read(reader: LineReader) -> int:
    return sum(each.bytes_read for each in _readers(reader)) if reader.path.is_dir() else reader.bytes_read


def _sha256(reader: LineReader) -> str:
    """Of the file, or of the digests of the files of a folder."""
    return digest([each.sha256 for each in reader.besides]) if reader.path.is_dir() else reader.sha256


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size
