"""Sentences with annotations, from a program or a format, become blocks of words."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from memtune.corpora.blocks.text_blocks import SENTENCE_END, BadLineError, Block, shorten
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.errors import CorpusError

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


def make_sentence_blocks(sentences: Iterable[Sequence[str]]) -> Iterator[Block]:
    """Sentences of words as blocks; raises what make_blocks raises."""
    return make_blocks(Example((sentence,)) for sentence in sentences)


def make_blocks(examples: Iterable[Example]) -> Iterator[Block]:
    """Examples as blocks.

    Raises CorpusError for a word that is empty or has whitespace, a NUL or a lone surrogate.
    """
    remaining = iter(examples)
    while chunk := list(islice(remaining, _EXAMPLES_PER_BLOCK)):
        sentences = [sentence for example in chunk for sentence in example.sentences]
        for word in {word for sentence in sentences for word in sentence}:
            if not _is_word(word):
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


def _is_word(word: str) -> bool:
    if not isinstance(word, str) or word.split() != [word] or SENTENCE_END in word:
        return False
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _build_tables(examples: Sequence[Example]) -> dict[str, pa.RecordBatch]:
    """The examples' rows by kind, their sentences counted from 0 within all the examples."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    first: dict[str, list[int]] = {}
    sentence = 0
    for example in examples:
        for kind, found in example.rows.items():
            rows.setdefault(kind, []).extend(found)
            first.setdefault(kind, []).extend([sentence] * len(found))
        sentence += len(example.sentences)
    return {kind: _build_table(kind, rows[kind], first[kind]) for kind in rows if rows[kind]}


def _build_table(kind: str, rows: Sequence[tuple[Any, ...]], first: Sequence[int]) -> pa.RecordBatch:
    schema = ANNOTATION_KINDS[kind].input_schema
    columns = [
        pa.array(column, type) for column, type in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]
    for index, name in enumerate(schema.names):
        if name in ANNOTATION_KINDS[kind].sentence_columns:
            columns[index] = pa.array(columns[index].to_numpy() + np.asarray(first))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
