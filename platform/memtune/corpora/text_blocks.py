"""The output of a text format: blocks of words with annotations."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict

from memtune.arguments import check_type
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import Location
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.errors import CorpusError, MemtuneError, PluginError
from memtune.number_format import format_count
from memtune.plugins import PluginSource
from memtune.plugins.source_modules import describe_error
from memtune.values import Value

SENTENCE_END = "\0"
"""Ends each sentence in blocks of words; no text contains it, because NUL bytes are refused."""

_MAX_REASON_CHARACTERS = 300
_MAX_SHOWN_CHARACTERS = 40
_MAX_DIGITS = 20
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class TextFile:
    """A source in one of the FORMATS, and options of its format.

    `path` is a file, a pipe, a folder of files, a pattern such as `books/*.txt`, or a URI of pyarrow.fs.
    """

    path: Location
    format: str = "text"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ArgumentError for a path that is neither a text nor a Path."""
        check_type(
            "path", self.path, (str, Path), 'a file, a folder, a pattern or a URI, such as "train.txt"'
        )


@dataclass(frozen=True)
class Block:
    """A sequence of whole sentences.

    words: the words of all sentences in order (Arrow strings), each sentence closed by SENTENCE_END.
    lengths: number of words of each sentence, SENTENCE_END included. annotations: by kind, rows with the
    columns of ANNOTATION_KINDS[kind].input_schema, whose sentences count from 0 within the block.
    text_words: the words of the text where the block's are characters or bytes.
    """

    words: pa.Array
    lengths: npt.NDArray[np.int32]
    annotations: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    text_words: int = 0


class BadLineError(Exception):
    """A line breaks its format, for `reason`; `line` is its number if it is not the first of its entry."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        # A reason quotes the file, which may have a line of megabytes or lone surrogates.
        printable = reason.encode(errors="backslashreplace").decode()
        self.reason = shorten(printable, _MAX_REASON_CHARACTERS)
        self.line = line


def shorten(text: str, characters: int = _MAX_SHOWN_CHARACTERS) -> str:
    """The start of a text, for a message."""
    return text if len(text) <= characters else f"{text[:characters]}..."


def parse_number(text: str, name: str, line: int | None = None) -> int:
    """A whole number from 0 of 32 bits. Raises BadLineError that names the field, and the line if given."""
    digits = text.strip()
    # int() takes time quadratic in the digits and refuses more than 4,300 of them with a ValueError.
    if not digits.isdecimal() or len(digits) > _MAX_DIGITS or int(digits) > _INT32_MAX:
        raise BadLineError(f'{name} "{shorten(digits)}" is not a whole number from 0 to {_INT32_MAX}', line)
    return int(digits)


def split_columns(text: str, count: int, line: int | None = None) -> list[str]:
    """The TAB-separated columns of a line. Raises BadLineError for another number of them."""
    columns = text.split("\t")
    if len(columns) != count:
        found = format_count(len(columns), "TAB-separated column")
        raise BadLineError(f"{found} instead of {count}", line)
    return columns


def has_lone_surrogate(text: str) -> bool:
    """Whether a text holds half of a pair of surrogates, as JSON may escape it, and cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def group_texts(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    """Lists of texts that have at most so many characters together, or of one text."""
    group: list[str] = []
    size = 0
    for text in texts:
        if group and size + len(text) > characters:
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group


class FormatOptions(Value):
    """Base of a format's options, which commands give as texts."""

    model_config = ConfigDict(strict=False)


@dataclass(frozen=True)
class Format:
    """A text format: how the lines of a file become sentences and annotations.

    read: yields the blocks of a file, given a value of `options`; raises CorpusError that names the line
    that breaks the format. summary: one line for users. annotations: kinds its blocks may have.
    reads_folders: whether it reads a local folder itself; for the others each file of a folder is read.
    """

    read: Callable[[LineReader, Any], Iterator[Block]]
    summary: str
    annotations: tuple[str, ...] = ()
    options: type[FormatOptions] = FormatOptions
    reads_folders: bool = False


def split_lines(lines: pa.Array) -> Block:
    """One sentence per line, words split as by `str.split`; a blank line has no words."""
    # Arrow's splitting yields empty words where a line starts or ends with whitespace, and may miss a
    # separator there because it looks past the end for more whitespace. So lines are trimmed first.
    trimmed = pc.utf8_trim_whitespace(lines)
    closed = pc.binary_join_element_wise(trimmed, SENTENCE_END, " ")
    blank = pc.equal(pc.binary_length(trimmed), 0)
    closed = pc.if_else(blank, SENTENCE_END, closed) if pc.any(blank).as_py() else closed
    words = pc.utf8_split_whitespace(closed)
    return Block(words.flatten(), np.diff(words.offsets.to_numpy()))


T = TypeVar("T")

_EXAMPLES_PER_BLOCK = 8192


@dataclass(frozen=True)
class Example:
    """Sentences that belong together, with their annotations.

    rows: by kind of annotation, rows with the columns of ANNOTATION_KINDS[kind].input_schema, whose sentences
    count from 0 within the example.
    """

    sentences: Sequence[Sequence[str]]
    rows: Mapping[str, Sequence[tuple[Any, ...]]] = field(default_factory=dict)


def make_blocks(examples: Iterable[Example]) -> Iterator[Block]:
    """Examples as blocks.

    Raises CorpusError for a word that is empty or has whitespace, a NUL or a lone surrogate.
    """
    remaining = iter(examples)
    while chunk := list(islice(remaining, _EXAMPLES_PER_BLOCK)):
        sentences = [sentence for example in chunk for sentence in example.sentences]
        for word in {word for sentence in sentences for word in sentence}:
            is_word = isinstance(word, str) and word.split() == [word] and SENTENCE_END not in word
            if not is_word or has_lone_surrogate(word):
                raise CorpusError(
                    f"{shorten(repr(word))} is not a word: words are not empty and hold no whitespace, NUL "
                    "or lone surrogate"
                )
        words = pa.array([word for sentence in sentences for word in (*sentence, SENTENCE_END)], pa.string())
        lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int32)
        yield Block(words, lengths, _build_tables(chunk))


def parse_blocks(
    reader: LineReader, items: Iterable[tuple[int, T]], parse: Callable[[T], Example | None]
) -> Iterator[Block]:
    """The blocks of the examples that `parse` makes of items, each given with its first line's number.

    BadLineError from `parse` is reported as a bad entry; None means that the format leaves the item out.
    """

    def examples() -> Iterator[Example]:
        for line, item in items:
            try:
                example = parse(item)
            except BadLineError as error:
                reader.report_bad(error.line or line, error.reason)
                continue
            reader.count_good()
            if example:
                yield example

    return make_blocks(examples())


def _build_tables(examples: Sequence[Example]) -> dict[str, pa.RecordBatch]:
    """The examples' rows by kind, their sentences counted from 0 within all the examples."""
    rows: dict[str, list[dict[str, Any]]] = {}
    sentence = 0
    for example in examples:
        for kind, found in example.rows.items():
            described = ANNOTATION_KINDS[kind]
            for values in found:
                row = dict(zip(described.columns, values, strict=True))
                moved = {name: row[name] + sentence for name in described.sentence_columns}
                rows.setdefault(kind, []).append(row | moved)
        sentence += len(example.sentences)
    return {
        kind: pa.RecordBatch.from_pylist(found, ANNOTATION_KINDS[kind].input_schema)
        for kind, found in rows.items()
    }


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
