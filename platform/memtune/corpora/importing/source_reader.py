"""Reading the sources of an import: words are counted, annotations spooled, bytes hashed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.arguments import check_type, describe_value
from memtune.corpora.blocks.text_blocks import (
    SENTENCE_END,
    BadLineError,
    Block,
    Example,
    Format,
    TextFile,
    make_blocks,
)
from memtune.corpora.formats import FORMATS
from memtune.corpora.importing.annotation_tables import AnnotationTables
from memtune.corpora.importing.data_sets import DataSet
from memtune.corpora.importing.split_assignment import Division, divide_block
from memtune.corpora.importing.word_counts import SplitCounter
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.locations import Location, parse_location
from memtune.corpora.sources.source_file import (
    SourceKind,
    find_kind,
    get_pipe_identity,
    list_source_files,
)
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.corpora.store.manifest import SPLITS, FileRecord, SourceRecord
from memtune.errors import ArgumentError, CorpusError, MemtuneError, PluginError, did_you_mean
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
    for split, source in sources.items():
        _check_source(split, source)
    annotated = any(
        not isinstance(source, DataSet)
        and (not isinstance(source, TextFile) or _find_format(source).annotations)
        for source in sources.values()
    )
    if not sources or set(sources) - set(SPLITS) or (len(sources) < len(SPLITS) and not annotated):
        raise CorpusError(
            f"{name}: a text needs --train, --valid and --test, or --train with --split 80,10,10; got "
            f"{', '.join(sources) or 'none of them'}; questions and labels may be of some splits only"
        )
    files = {split: source for split, source in sources.items() if isinstance(source, TextFile)}
    kinds = {split: _check_file(split, source) for split, source in files.items()}
    _refuse_repeated_pipes(
        [files[split].path for split, kind in kinds.items() if kind is SourceKind.PIPE],
    )


def _check_source(split: str, source: object) -> None:
    """Refuse the path of a file, whose letters would be read as sentences, and what cannot be read at all."""
    is_path = isinstance(source, str | bytes | Path)
    if is_path or not isinstance(source, TextFile | DataSet | Iterable):
        file = f"; a file is TextFile({str(source)!r})" if is_path else ""
        raise ArgumentError(
            f'sources["{split}"] must be a TextFile, a DataSet, or sentences as lists of words; got '
            f"{describe_value(source)}{file}"
        )


def _check_file(split: str, source: TextFile) -> SourceKind:
    _parse_options(source)
    kind = find_kind(source.path, f"the {split} file")
    if kind in (SourceKind.FOLDER, SourceKind.PATTERN) and not _reads_whole_folder(source, kind):
        list_source_files(source.path)
    return kind


def _reads_whole_folder(source: TextFile, kind: SourceKind) -> bool:
    is_local = isinstance(parse_location(source.path), Path)
    return kind is SourceKind.FOLDER and is_local and _find_format(source).reads_folders


def _refuse_repeated_pipes(paths: Sequence[Location]) -> None:
    """Refuses one pipe for two splits: the second read would wait for a writer forever."""
    identities = [get_pipe_identity(path) for path in paths]
    for path, identity in zip(paths, identities, strict=True):
        if identities.count(identity) > 1:
            raise CorpusError(
                f"{path} is a pipe, which can be read once, and several splits name it; give each split its "
                "own, or divide the text with --split"
            )


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
        elif isinstance(source, DataSet):
            record = self._read_data_set(source, counter, split)
        else:
            record = self._read_sentences(source, counter, split)
        counter.merge()
        if not counter.word_count:
            skipped = "".join(f"; {count:,} {reason}" for reason, count in record.skipped.items())
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
        _finish_division(division, counters)
        total = sum(division.shares.values())
        return {
            split: record.model_copy(
                update={"division": f"{division.shares[split] / total:.3g} of it, seed {division.seed}"}
            )
            for split in counters
        }

    def _read_blocks(self, source: TextFile, reader: LineReader, split: str) -> Iterator[Block]:
        size = reader.size_bytes
        for file in _open_files(source, reader):
            try:
                for block in _read_file(source, file):
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

    def _read_data_set(self, source: DataSet, counter: SplitCounter, split: str) -> SourceRecord:
        content = ContentDigest()

        def texts() -> Iterator[str]:
            for text in source.read_texts():
                content.add(f"{text}\n".encode(errors="surrogatepass"))
                yield text

        for block in source.read_blocks(texts()):
            self._add_block(block, counter, split)
            if self.progress:
                self.progress(content.bytes, None, split)
        return SourceRecord(
            name="data set",
            format="data set",
            sha256=content.sha256,
            bytes=content.bytes,
            options=source.options.model_dump(mode="json"),
        )

    def _read_sentences(
        self, sentences: Iterable[Sequence[str] | Example], counter: SplitCounter, split: str
    ) -> SourceRecord:
        text = ContentDigest()

        def examples() -> Iterator[Example]:
            for item in sentences:
                if isinstance(item, Mapping):
                    raise CorpusError(
                        "a record instead of a sentence; name its text: DataSet(data, column=...), or "
                        "find_splits(data_sets) for several splits"
                    )
                if isinstance(item, str) or not isinstance(item, Example | Iterable):
                    raise CorpusError(
                        f"the {split} split: a sentence is a list of words, got {describe_value(item)}; "
                        "split texts into words, or name their column with DataSet(data, column=...)"
                    )
                example = item if isinstance(item, Example) else Example((item,))
                for sentence in example.sentences:
                    # make_blocks refuses numbers and lone surrogates with a message; the digest accepts them.
                    text.add(f"{' '.join(map(str, sentence))}\n".encode(errors="surrogatepass"))
                yield example

        for block in make_blocks(examples()):
            self._add_block(block, counter, split)
            if self.progress:
                self.progress(text.bytes, None, split)
        return SourceRecord(name="sentences", format="sentences", sha256=text.sha256, bytes=text.bytes)

    def _add_block(self, block: Block, counter: SplitCounter, split: str) -> None:
        self.tables.add(split, block.annotations, counter.sentence_count)
        counter.add(block)


def _read_file(source: TextFile, file: LineReader) -> Iterator[Block]:
    read, options = _find_format(source).read, _parse_options(source)
    plugin = FORMATS.get_source(source.format)
    if plugin is None:
        return read(file, options)
    return check_plugin_blocks(lambda: read(file, options), source.format, plugin)


def _finish_division(division: Division, counters: Mapping[str, SplitCounter]) -> None:
    path = division.source.path
    sentences = sum(counter.sentence_count for counter in counters.values())
    reason = f"no word in {division.source.path}"
    if any(counter.word_count for counter in counters.values()):
        reason = (
            f"with seed {division.seed} it got none of the {sentences:,} sentences of {path}, of which "
            "equal ones share a split; give it a larger share in --split, or use another --split-seed"
        )
    for split, counter in counters.items():
        counter.merge()
        if not counter.word_count:
            raise CorpusError(f"the {split} split is empty: {reason}")


def _open_files(source: TextFile, reader: LineReader) -> Iterator[LineReader]:
    """The readers of a source's files: itself, or one for each file of a folder or pattern."""
    kind = find_kind(source.path)
    if not reader.is_folder or _reads_whole_folder(source, kind):
        yield reader
        return
    for path in list_source_files(source.path):
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
        sha256=_digest_source(reader),
        bytes=_count_bytes_read(reader),
        options=_parse_options(source).model_dump(mode="json"),
        beside=tuple(
            FileRecord(name=other.name, sha256=other.sha256, bytes=other.bytes_read) for other in readers[1:]
        ),
        skipped=dict(skipped),
        notes=tuple(note for each in readers for note in each.notes),
    )


def _find_format(source: TextFile) -> Format:
    if source.format not in FORMATS:
        raise CorpusError(f'no format "{source.format}"; {did_you_mean(source.format, FORMATS.list_names())}')
    return FORMATS[source.format]


def _parse_options(source: TextFile) -> Value:
    options: Value = parse(_find_format(source).options, dict(source.options), f"format {source.format}")
    return options


def _chain_readers(reader: LineReader) -> Iterator[LineReader]:
    """The reader and those of all files that belong to it."""
    yield reader
    for companion in reader.companions:
        yield from _chain_readers(companion)


def _count_bytes_read(reader: LineReader) -> int:
    return sum(each.bytes_read for each in _chain_readers(reader)) if reader.is_folder else reader.bytes_read


def _digest_source(reader: LineReader) -> str:
    """SHA-256 of the file, or the digest of the digests of the files of a folder."""
    return digest([each.sha256 for each in reader.companions]) if reader.is_folder else reader.sha256


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
    if not isinstance(block.words, pa.Array) or not pa.types.is_string(block.words.type):
        return "words that are not an Arrow array of strings"
    if block.words.null_count:
        return "words that are null"
    lengths = block.lengths
    if not isinstance(lengths, np.ndarray) or lengths.dtype != np.int32 or lengths.ndim != 1:
        return "lengths of sentences that are not an array of int32"
    if (lengths < 1).any():
        return "lengths of sentences below 1"
    ends = np.cumsum(lengths, dtype=np.int64) - 1
    if (ends[-1] + 1 if len(ends) else 0) != len(block.words):
        return f"{len(block.words)} words for sentences of {lengths.sum()} words"
    is_end = pc.equal(block.words, SENTENCE_END).to_numpy(zero_copy_only=False)
    if not np.array_equal(np.flatnonzero(is_end), ends):
        return "sentences that do not end in SENTENCE_END, or have it between their words"
    if unknown := set(block.annotations) - set(ANNOTATION_KINDS):
        return f"annotations of unknown kinds: {', '.join(sorted(map(str, unknown)))}"
    return next(filter(None, map(_find_table_problem, block.annotations.items())), None)


def _find_table_problem(annotation: tuple[str, object]) -> str | None:
    kind, rows = annotation
    schema = ANNOTATION_KINDS[kind].input_schema
    if isinstance(rows, pa.RecordBatch) and rows.schema.equals(schema):
        return None
    return f'annotations "{kind}" that are not a RecordBatch with the columns {", ".join(schema.names)}'
