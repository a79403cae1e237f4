"""The texts of records, such as rows of a table or JSON objects, become blocks of sentences."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.importing.prose import ProseOptions, make_prose_blocks, split_paragraphs
from memtune.corpora.importing.text_blocks import BadLineError, Block, shorten, split_lines
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = [
    "RecordOptions",
    "describe_missing_column",
    "extract_text",
    "make_record_blocks",
    "make_text_column",
]

_BLOCK_CHARACTERS = 2**22
_SHOWN_NAMES = 10


class RecordOptions(Value):
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


def make_text_column(column: pa.Array, name: str) -> pa.Array:
    """A column of texts or of lists of words as Arrow strings.

    Raises CorpusError, which calls the column `name`, for another type.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type):
        words = column.cast(pa.list_(pa.string()))
        return pc.binary_join(words, " ")
    if not _is_text(kind):
        raise CorpusError(f'the column "{name}" holds {kind}, not text; choose another: --option column=NAME')
    return column.cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


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
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CorpusError(
            f"{name}: a lone surrogate in {shorten(ascii(text))}, which no text may hold"
        ) from None
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
