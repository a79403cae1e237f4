"""Reading the sources of an import: words are counted, annotations spooled, bytes hashed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.arguments import check_type, describe_value
from memtune.corpora.formats import FORMATS
from memtune.corpora.formats.records import make_record_blocks
from memtune.corpora.importing.counted_text import AnnotationTables, SplitCounter
from memtune.corpora.importing.import_sources import DataSet, Division, divide_block
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import SourceFile, SourceKind
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.corpora.store.manifest import SPLITS, FileRecord, SourceRecord
from memtune.corpora.text_blocks import (
    SENTENCE_END,
    BadLineError,
    Block,
    Example,
    Format,
    TextFile,
    make_blocks,
)
from memtune.errors import ArgumentError, CorpusError, MemtuneError, PluginError, did_you_mean
from memtune.number_format import format_count
from memtune.plugins import PluginSource
from memtune.plugins.source_modules import describe_error
from memtune.storage.digests import ContentDigest
from memtune.values import Value, digest, parse

ProgressCallback = Callable[[int, int | None, str], None]
"""Called with bytes read, total bytes (None if unknown) and the split."""

Source = TextFile | DataSet | Iterable[Sequence[str] | Example]
"""What a split is read from: a file, a data set of a program, or sentences as sequences of words without
`<eos>`, annotated or not."""


def check_sources(name: str, sources: Mapping[str, Source] | Division) -> None:
    """Raises CorpusError for wrong splits, formats, options and files, before anything is read.

    Raises ArgumentError for sources of another type, such as the path of a file.
    """
    expected = 'a mapping of splits to sources, such as {"train": TextFile("train.txt"), ...}, or a Division'
    check_type("sources", sources, (Mapping, Division), expected)
    if isinstance(sources, Division):
        _check_file("train", sources.source)
        return
    for split, each in sources.items():
        # The letters of a path would be read as sentences.
        is_path = isinstance(each, str | bytes | Path)
        if is_path or not isinstance(each, TextFile | DataSet | Iterable):
            file = f"; a file is TextFile({str(each)!r})" if is_path else ""
            raise ArgumentError(
                f'sources["{split}"] must be a TextFile, a DataSet, or sentences as lists of words; got '
                f"{describe_value(each)}{file}"
            )
    annotated = any(
        not isinstance(source, DataSet)
        and (not isinstance(source, TextFile) or find_format(source).annotations)
        for source in sources.values()
    )
    if not sources or set(sources) - set(SPLITS) or (len(sources) < len(SPLITS) and not annotated):
        raise CorpusError(
            f"{name}: a text needs --train, --valid and --test, or --train with --split 80,10,10; got "
            f"{', '.join(sources) or 'none of them'}; questions and labels may be of some splits only"
        )
    files = [_check_file(split, source) for split, source in sources.items() if isinstance(source, TextFile)]
    pipes = [file for file in files if file.kind is SourceKind.PIPE]
    identities = [file.pipe_identity for file in pipes]
    for pipe, identity in zip(pipes, identities, strict=True):
        if identities.count(identity) > 1:  # the second read would wait for a writer forever
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
    return file.kind is SourceKind.FOLDER and file.remote is None and find_format(source).reads_folders


@dataclass(frozen=True)
class SourceReader:
    """Reads the sources of one import."""

    tables: AnnotationTables
    skip_bad: bool
    progress: ProgressCallback | None

    def read(self, source: Source, counter: SplitCounter, split: str) -> SourceRecord:
        """Counts the words of a whole split and describes its source."""
        if isinstance(source, TextFile):
            with closing(LineReader(source.path, skip_bad=self.skip_bad)) as reader:
                for block in self._read_blocks(source, reader, split):
                    self._add_block(block, counter, split)
                record = _make_record(source, reader)
        else:
            record = self._read_data(source, counter, split)
        if not counter.word_count:
            skipped = "".join(
                f"; {f'{count:,}' if count > 1 else '1 left out:'} {reason}"  # reasons are in the plural
                for reason, count in record.skipped.items()
            )
            raise CorpusError(f"the {split} split is empty: no word in {record.name}{skipped}")
        return record

    def read_division(
        self, division: Division, counters: Mapping[str, SplitCounter]
    ) -> dict[str, SourceRecord]:
        """Counts the words of all splits of a divided file and describes the file."""
        with closing(LineReader(division.source.path, skip_bad=self.skip_bad)) as reader:
            for block in self._read_blocks(division.source, reader, "all"):
                for split, part in divide_block(block, division):
                    self._add_block(part, counters[split], split)
            record = _make_record(division.source, reader)
        sentences = format_count(sum(counter.sentence_count for counter in counters.values()), "sentence")
        path, reason = division.source.path, f"no word in {division.source.path}"
        if any(counter.word_count for counter in counters.values()):
            reason = (
                f"with seed {division.seed} it got none of the {sentences} of {path}, of which "
                "equal ones share a split; give it a larger share in --split, or use another --split-seed"
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
        self, source: DataSet | Iterable[Sequence[str] | Example], counter: SplitCounter, split: str
    ) -> SourceRecord:
        """Counts the words of a data set or of sentences."""
        content = ContentDigest()
        if isinstance(source, DataSet):
            name, options = "data set", source.options.model_dump(mode="json")
            blocks = make_record_blocks(_hash_texts(source, content), source.options, "the data set")
        else:
            name, options = "sentences", {}
            blocks = make_blocks(_hash_sentences(source, split, content))
        for block in blocks:
            self._add_block(block, counter, split)
            if self.progress:
                self.progress(content.bytes, None, split)
        return SourceRecord(
            name=name, format=name, sha256=content.sha256, bytes=content.bytes, options=options
        )

    def _add_block(self, block: Block, counter: SplitCounter, split: str) -> None:
        self.tables.add(split, block.annotations, counter.sentence_count)
        counter.add(block)


def _hash_texts(source: DataSet, content: ContentDigest) -> Iterator[str]:
    for text in source.read_texts():
        content.add(f"{text}\n".encode(errors="surrogatepass"))
        yield text


def _hash_sentences(
    sentences: Iterable[Sequence[str] | Example], split: str, content: ContentDigest
) -> Iterator[Example]:
    for item in sentences:
        if isinstance(item, str | Mapping) or not isinstance(item, Example | Iterable):
            raise CorpusError(
                f"the {split} split: a sentence is a list of words, got {describe_value(item)}; split texts "
                "into words, or name the column of records: DataSet(data, column=...), or "
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
    skipped = Counter[str]()
    for each in readers:
        skipped.update(each.skipped)
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
        skipped=dict(skipped),
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


def check_plugin_blocks(
    read: Callable[[], Iterable[Block]], name: str, source: PluginSource
) -> Iterator[Block]:
    """The blocks that a package's format reads.

    Raises PluginError for an error of its code and for a block that is none: unchecked, its words would be
    counted wrongly.
    """
    blocks: Iterator[Block] | None = None
    while True:
        try:
            with redirect_stdout(sys.stderr):  # what it prints is not part of a command's output
                blocks = iter(read()) if blocks is None else blocks
                block = next(blocks)
        except StopIteration:
            return
        except (MemtuneError, BadLineError):
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f'{source}: the text format "{name}" fails: {describe_error(error)}') from error
        if problem := _find_problem(block):
            raise PluginError(f'{source}: the text format "{name}" yields {problem}')
        yield block


def _find_problem(block: object) -> str | None:
    """What is wrong with a block; None for one that follows the interface."""
    if not isinstance(block, Block):
        return f"{type(block).__name__} instead of a Block"
    words, lengths = block.words, block.lengths
    if not isinstance(words, pa.Array) or not pa.types.is_string(words.type) or words.null_count:
        return "words that are not an Arrow array of strings without nulls"
    if not isinstance(lengths, np.ndarray) or lengths.dtype != np.int32 or lengths.ndim != 1:
        return "lengths of sentences that are not an array of int32"
    ends = np.flatnonzero(pc.equal(words, SENTENCE_END).to_numpy(zero_copy_only=False))
    if not np.array_equal(np.diff(ends, prepend=-1), lengths) or len(words) != lengths.sum():
        return "sentences of other lengths than those from one SENTENCE_END to the next"
    if unknown := set(block.annotations) - set(ANNOTATION_KINDS):
        return f"annotations of unknown kinds: {', '.join(sorted(map(str, unknown)))}"
    for kind, rows in block.annotations.items():
        schema = ANNOTATION_KINDS[kind].input_schema
        if not (isinstance(rows, pa.RecordBatch) and rows.schema.equals(schema)):
            names = ", ".join(schema.names)
            return f'annotations "{kind}" that are not a RecordBatch with the columns {names}'
    return None
