"""The sources of an import, and their reading: words are counted, annotations spooled, bytes hashed."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memtune.arguments import check_type, describe_value
from memtune.corpora.formats import FORMATS
from memtune.corpora.formats.records import WITHOUT_TEXT, make_record_blocks
from memtune.corpora.importing.counted_text import CountedText
from memtune.corpora.importing.data_sets import DataSet
from memtune.corpora.importing.division import Division, divide_block, suggest_file
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import SourceFile
from memtune.corpora.store.manifest import SPLITS, FileRecord, SourceRecord
from memtune.corpora.text_blocks import (
    BadLineError,
    Block,
    Example,
    Format,
    TextFile,
    check_plugin_blocks,
    make_blocks,
)
from memtune.errors import ArgumentError, CorpusError, did_you_mean
from memtune.number_format import format_count
from memtune.storage.digests import ContentDigest
from memtune.values import Value, digest, parse

ProgressCallback = Callable[[int, int | None, str], None]
"""Called with bytes read, total bytes (None if unknown) and what is read: a split, "all" or "vectors"."""

Source = TextFile | DataSet | Iterable[Sequence[str] | Example]
"""What a split is read from: a file, a data set of a program, or sentences as sequences of words without
`<eos>`, annotated or not."""


def list_sources(sources: Mapping[str, Source] | Division) -> list[Source]:
    """The sources of all splits, or the divided one."""
    return [sources.source] if isinstance(sources, Division) else [*sources.values()]


def check_sources(name: str, sources: Mapping[str, Source] | Division) -> None:
    """Raises CorpusError for wrong splits, formats, options and files, and ArgumentError for other types."""
    expected = 'a mapping of splits to sources, such as {"train": TextFile("train.txt"), ...}, or a Division'
    check_type("sources", sources, (Mapping, Division), expected)
    if isinstance(sources, Division):
        if isinstance(sources.source, TextFile):
            _check_file("train", sources.source)
        return
    for split, each in sources.items():
        # The letters of a path would be read as sentences.
        if isinstance(each, str | bytes | Path) or not isinstance(each, TextFile | DataSet | Iterable):
            raise ArgumentError(
                f'sources["{split}"] must be a TextFile, a DataSet, or sentences as lists of words; got '
                f"{describe_value(each)}{suggest_file(each)}"
            )
    for split in sources:
        if split not in SPLITS:
            raise CorpusError(f'{name}: no split is called "{split}"; {did_you_mean(split, SPLITS)}')
    annotated = any(
        not isinstance(source, DataSet)
        and (not isinstance(source, TextFile) or find_format(source).annotations)
        for source in sources.values()
    )
    if not sources or (len(sources) < len(SPLITS) and not annotated):
        raise CorpusError(
            f"{name}: a text needs --train, --valid and --test, or --train with --split 80,10,10; got "
            f"{', '.join(sources) or 'none of them'}; questions and labels may be of some splits only"
        )
    files = [_check_file(split, source) for split, source in sources.items() if isinstance(source, TextFile)]
    pipes = [file for file in files if file.kind == "pipe"]
    for pipe in pipes:
        if any(other is not pipe and other.pipe_identity == pipe.pipe_identity for other in pipes):
            # The second read would wait for a writer forever.
            raise CorpusError(
                f"{pipe.path} is a pipe, which can be read once, and several splits name it; give each split "
                "its own, or divide the text with --split"
            )


def _check_file(split: str, source: TextFile) -> SourceFile:
    parse_options(source)
    file = SourceFile(source.path, f"the {split} file")
    if file.is_folder and not _reads_whole_folder(source, file):
        file.list_files()
    return file


def _reads_whole_folder(source: TextFile, file: SourceFile) -> bool:
    return file.kind == "folder" and file.remote is None and find_format(source).reads_folders


@dataclass(frozen=True)
class SourceReader:
    """Reads the sources of one import."""

    text: CountedText
    skip_bad: bool
    progress: ProgressCallback | None

    def read(self, sources: Mapping[str, Source] | Division) -> dict[str, SourceRecord]:
        """Counts the words of all splits and describes the source of each."""
        if isinstance(sources, Division):
            return self._read_division(sources)
        return {split: self._read_split(split, sources[split]) for split in self.text.counters}

    def _read_split(self, split: str, source: Source) -> SourceRecord:
        record = self._read_source(source, split, lambda block: [(split, block)])
        if not self.text.counters[split].word_count:
            skipped = "".join(
                f"; {f'{count:,}' if count > 1 else '1 left out:'} {reason}"  # reasons are in the plural
                for reason, count in record.skipped.items()
            )
            raise CorpusError(f"the {split} split is empty: no word in {record.name}{skipped}")
        return record

    def _read_division(self, division: Division) -> dict[str, SourceRecord]:
        record = self._read_source(division.source, "all", partial(divide_block, division=division))
        counters = self.text.counters
        sentences = format_count(sum(counter.sentence_count for counter in counters.values()), "sentence")
        reason = f"no word in {record.name}"
        if any(counter.word_count for counter in counters.values()):
            reason = (
                f"with seed {division.seed} it got none of the {sentences} of {record.name}, of which equal "
                "ones share a split; give it a larger share in --split or use another --split-seed, or where "
                "a line holds many sentences, --format prose"
            )
        for split, counter in counters.items():
            if not counter.word_count:
                raise CorpusError(f"the {split} split is empty: {reason}")
        total = sum(division.shares.values())
        return {
            split: record.model_copy(
                update={"division": f"{division.shares[split] / total:.3g} of it, seed {division.seed}"}
            )
            for split in counters
        }

    def _read_source(
        self, source: Source, split: str, divide: Callable[[Block], Iterable[tuple[str, Block]]]
    ) -> SourceRecord:
        """Counts the words of a source and describes it; `divide` says to which split each block belongs."""
        if not isinstance(source, TextFile):
            return self._read_data(source, split, divide)
        with closing(LineReader(source.path, skip_bad=self.skip_bad)) as reader:
            for block in self._read_blocks(source, reader, split):
                for own, part in divide(block):
                    self.text.add(own, part)
            return _make_record(source, reader)

    def _read_blocks(self, source: TextFile, reader: LineReader, split: str) -> Iterator[Block]:
        size, plugin = reader.size_bytes, FORMATS.get_source(source.format)
        for file in _open_files(source, reader):
            read = partial(find_format(source).read, file, parse_options(source))
            blocks = read() if plugin is None else check_plugin_blocks(read, source.format, plugin)
            try:
                for block in blocks:
                    yield block
                    if self.progress:
                        self.progress(_count_bytes_read(reader), size, split)
            except BadLineError as error:  # of a plug-in, which cannot go on after it
                line = "" if error.line is None else f"line {error.line}: "
                raise CorpusError(
                    f'{file.name}: {line}{error.reason}; correct it: the format "{source.format}" leaves no '
                    "line out, also with --skip-bad (LineReader.report_bad does)"
                ) from None
            file.check_bad_share()

    def _read_data(
        self,
        source: DataSet | Iterable[Sequence[str] | Example],
        split: str,
        divide: Callable[[Block], Iterable[tuple[str, Block]]],
    ) -> SourceRecord:
        """Counts the words of a data set or of sentences."""
        content, skipped = ContentDigest(), Counter[str]()
        if isinstance(source, DataSet):
            name, options = "data set", source.options.model_dump(mode="json")
            place = f"the {split} split" if split in SPLITS else "the data set"
            blocks = make_record_blocks(_hash_texts(source, place, content, skipped), source.options, place)
        else:
            name, options = "sentences", {}
            blocks = make_blocks(_hash_sentences(source, split, content))
        for block in blocks:
            for own, part in divide(block):
                self.text.add(own, part)
            if self.progress:
                self.progress(content.bytes, None, split)
        return SourceRecord(
            name=name,
            format=name,
            sha256=content.sha256,
            bytes=content.bytes,
            options=options,
            skipped=dict(skipped),
        )


def _hash_texts(source: DataSet, place: str, content: ContentDigest, skipped: Counter[str]) -> Iterator[str]:
    try:
        for text in source.read_texts():
            if text is None:
                skipped[WITHOUT_TEXT] += 1
                continue
            content.add(f"{text}\n".encode())
            yield text
    except CorpusError as error:
        raise CorpusError(f"{place}: {error}") from None


def _hash_sentences(
    sentences: Iterable[Sequence[str] | Example], split: str, content: ContentDigest
) -> Iterator[Example]:
    for item in sentences:
        if isinstance(item, str | Mapping) or not isinstance(item, Example | Iterable):
            raise CorpusError(
                f"the {split} split: a sentence is a list of words, got {describe_value(item)}; give "
                "texts as DataSet(texts), name the column of records: DataSet(data, column=...), or use "
                "find_splits(data_sets)"
            )
        example = item if isinstance(item, Example) else Example((item,))
        for sentence in example.sentences:
            # make_blocks refuses numbers and lone surrogates with a message; the digest accepts them.
            content.add(f"{' '.join(map(str, sentence))}\n".encode(errors="surrogatepass"))
        yield example


def _open_files(source: TextFile, reader: LineReader) -> Iterator[LineReader]:
    """The readers of a source's files: itself, or one for each file of a folder or pattern."""
    if not reader.is_folder or _reads_whole_folder(source, reader.source):
        yield reader
        return
    for path in reader.source.list_files():
        companion = reader.open_companion(path)
        yield companion
        companion.close()


def _make_record(source: TextFile, reader: LineReader) -> SourceRecord:
    readers = list(_chain_readers(reader))
    return SourceRecord(
        name=reader.name,
        format=source.format,
        # Of a folder, the digest of the digests of its files.
        sha256=digest([each.sha256 for each in reader.companions]) if reader.is_folder else reader.sha256,
        bytes=_count_bytes_read(reader),
        options=parse_options(source).model_dump(mode="json"),
        beside=tuple(
            FileRecord(name=other.name, sha256=other.sha256, bytes=other.bytes_read) for other in readers[1:]
        ),
        skipped=dict(sum((Counter(each.skipped) for each in readers), Counter[str]())),
        notes=tuple(note for each in readers for note in each.notes),
    )


def find_format(source: TextFile) -> Format:
    """The format of a file. Raises CorpusError, with the nearest name, for an unknown one."""
    if source.format not in FORMATS:
        raise CorpusError(f'no format "{source.format}"; {did_you_mean(source.format, FORMATS.list_names())}')
    return FORMATS[source.format]


def parse_options(source: TextFile) -> Value:
    """The options of a file's format. Raises ConfigurationError that names the wrong one."""
    options: Value = parse(find_format(source).options, dict(source.options), f"format {source.format}")
    return options


def _chain_readers(reader: LineReader) -> Iterator[LineReader]:
    """The reader and those of all files that belong to it."""
    yield reader
    for companion in reader.companions:
        yield from _chain_readers(companion)


def _count_bytes_read(reader: LineReader) -> int:
    return sum(each.bytes_read for each in _chain_readers(reader)) if reader.is_folder else reader.bytes_read
