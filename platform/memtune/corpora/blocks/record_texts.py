"""The texts of records, such as rows of a table or JSON objects, become blocks of sentences."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.blocks.prose import ProseOptions, make_prose_blocks, split_paragraphs
from memtune.corpora.blocks.text_blocks import (
    BadLineError,
    Block,
    FormatOptions,
    has_lone_surrogate,
    shorten,
    split_lines,
)
from memtune.errors import CorpusError

_BLOCK_CHARACTERS = 2**22
_SHOWN_NAMES = 10
_MAX_TEXT_BYTES = 2**22
_MAX_PART_BYTES = 2**26
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


class RecordOptions(FormatOptions):
    """`column` names the field with the text. `content` is `lines`, one sentence per line of the text with
    words separated by whitespace, or `prose`, which is split into sentences and words. A list of words is one
    sentence.
    """

    column: str = "text"
    content: Literal["lines", "prose"] = "lines"


def extract_text(record: Any, column: str) -> str | None:
    """The text of a record, or None for a missing value. Raises BadLineError for anything else."""
    if not isinstance(record, dict):
        raise BadLineError(f"{type(record).__name__} instead of an object with fields")
    if column not in record:
        raise BadLineError(describe_missing_column(column, list(record)))
    value = record[column]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if value is None or isinstance(value, str):
        return value
    raise BadLineError(f'"{shorten(column)}" is {type(value).__name__}, not a text or a list of words')


def describe_missing_column(column: str, names: list[str]) -> str:
    """A message for a column that does not exist, with those that do."""
    shown = ", ".join(shorten(name) for name in names[:_SHOWN_NAMES]) or "nothing"
    return f'no column "{shorten(column)}"; there is {shown}: choose one with --option column=NAME'


def iterate_text_columns(column: pa.Array, name: str) -> Iterator[pa.Array]:
    """A column of texts or of lists of words as Arrow strings, in parts of at most 64 MiB.

    A small file may repeat one long text in many rows, so sizes are checked before texts are copied. Raises
    CorpusError, which calls the column `name`, for another type and for a text of more than 4 MiB.
    """
    is_list = isinstance(column, pa.ListArray | pa.LargeListArray)
    if is_list:
        leaf, offsets = column.values, column.offsets.to_numpy()
    else:
        leaf, offsets = column, np.arange(len(column) + 1)
    kind = leaf.type.value_type if pa.types.is_dictionary(leaf.type) else leaf.type
    if not any(is_text(kind) for is_text in _TEXT_TYPES):
        raise CorpusError(
            f'the column "{name}" holds {column.type}, not text; choose another: --option column=NAME'
        )
    ends = np.append(0, np.cumsum(_measure_bytes(leaf)))[offsets]
    if (longest := np.diff(ends).max(initial=0)) > _MAX_TEXT_BYTES:
        raise CorpusError(
            f'a text of the column "{name}" has {longest:,} bytes, more than {_MAX_TEXT_BYTES:,}; divide it'
        )
    start = 0
    while start < len(column):
        end = int(np.searchsorted(ends, ends[start] + _MAX_PART_BYTES, side="right")) - 1
        part = column.slice(start, end - start)
        yield pc.binary_join(part.cast(pa.list_(pa.string())), " ") if is_list else part.cast(pa.string())
        start = end


def _measure_bytes(leaf: pa.Array) -> npt.NDArray[np.int64]:
    """The bytes of each text; 0 for a missing one."""
    has_indices = pa.types.is_dictionary(leaf.type)
    texts = leaf.dictionary if has_indices else leaf
    views = pa.types.is_string_view(texts.type)  # whose bytes pyarrow does not count
    lengths = pc.binary_length(texts.cast(pa.large_string()) if views else texts)
    lengths = lengths.take(leaf.indices) if has_indices else lengths
    measured: npt.NDArray[np.int64] = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return measured


def make_record_blocks(texts: Iterable[str], options: RecordOptions, name: str) -> Iterator[Block]:
    """The sentences of texts.

    Raises CorpusError, which calls the source `name`, for a NUL or a lone surrogate.
    """
    if options.content == "prose":
        yield from make_prose_blocks(
            (
                paragraph
                for text in texts
                for paragraph in split_paragraphs(_check_text(text, name).splitlines(), name)
            ),
            ProseOptions(),
        )
        return
    for group in _group_texts(texts):
        yield from _split_texts(group, name)


def _check_text(text: str, name: str) -> str:
    if "\0" in text:
        raise CorpusError(f"{name}: a NUL in {shorten(repr(text))}; texts hold none")
    if has_lone_surrogate(text):
        raise CorpusError(f"{name}: a lone surrogate in {shorten(ascii(text))}, which no text may hold")
    return text


def _group_texts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Lists of texts of a bounded length together."""
    group: list[str] = []
    characters = 0
    for text in texts:
        group.append(text)
        characters += len(text) + 1
        if characters > _BLOCK_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _split_texts(texts: list[str], name: str) -> Iterator[Block]:
    try:
        array = pa.array(texts, pa.string())
    except (UnicodeEncodeError, pa.ArrowException):
        array = pa.array([_check_text(text, name) for text in texts], pa.string())
    if pc.any(pc.match_substring(array, "\0")).as_py():
        for text in texts:
            _check_text(text, name)
    for sign in ("\r\n", "\r"):
        array = pc.replace_substring(array, sign, "\n")
    lines = pc.split_pattern(array, "\n").flatten()
    blank = pc.or_(pc.utf8_is_space(lines), pc.equal(pc.binary_length(lines), 0))
    lines = lines.filter(pc.invert(blank))
    if len(lines):
        yield split_lines(lines)
