"""Sentences from a program or a format, with what is known of them, on their way into blocks of words."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from memtune.corpora.annotations import KINDS
from memtune.corpora.sources import END, BadLineError, Block, LineReader
from memtune.errors import CorpusError

__all__ = ["Example", "example_blocks", "parsed_blocks", "sentence_blocks"]

T = TypeVar("T")

_BLOCK_EXAMPLES = 8192


@dataclass(frozen=True)
class Example:
    """Sentences that belong together, and what is known of them.

    rows: by kind of annotation, rows with the columns of KINDS[kind].given, whose sentences count from 0
    within the example.
    """

    sentences: Sequence[Sequence[str]]
    rows: Mapping[str, Sequence[tuple[Any, ...]]] = field(default_factory=dict)


def sentence_blocks(sentences: Iterable[Sequence[str]]) -> Iterator[Block]:
    """Sentences of words as blocks; a CorpusError for a word that is empty or holds whitespace or NUL."""
    return example_blocks(Example((sentence,)) for sentence in sentences)


def example_blocks(examples: Iterable[Example]) -> Iterator[Block]:
    """Examples as blocks; a CorpusError for a word that is empty or holds whitespace or NUL."""
    remaining = iter(examples)
    while chunk := list(islice(remaining, _BLOCK_EXAMPLES)):
        sentences = [sentence for example in chunk for sentence in example.sentences]
        for word in {word for sentence in sentences for word in sentence}:
            if word.split() != [word] or END in word:
                raise CorpusError(f"{word!r} is no word: words are not empty and hold no whitespace or NUL")
        words = pa.array([word for sentence in sentences for word in (*sentence, END)], pa.string())
        lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int32)
        yield Block(words, lengths, _tables(chunk))


def parsed_blocks(
    reader: LineReader, items: Iterable[tuple[int, T]], parse: Callable[[T], Example | None]
) -> Iterator[Block]:
    """What `parse` makes of the items of a file, each given with the number of its first line.

    An item for which it raises BadLineError is a bad line; one for which it returns None was left out.
    """

    def examples() -> Iterator[Example]:
        for line, item in items:
            try:
                example = parse(item)
            except BadLineError as error:
                reader.bad(error.line or line, error.reason)
                continue
            reader.good()
            if example:
                yield example

    return example_blocks(examples())


def _tables(examples: Sequence[Example]) -> dict[str, pa.RecordBatch]:
    """The examples' rows by kind, their sentences counted from 0 within all the examples."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    first: dict[str, list[int]] = {}
    sentence = 0
    for example in examples:
        for kind, found in example.rows.items():
            rows.setdefault(kind, []).extend(found)
            first.setdefault(kind, []).extend([sentence] * len(found))
        sentence += len(example.sentences)
    return {kind: _table(kind, rows[kind], first[kind]) for kind in rows if rows[kind]}


def _table(kind: str, rows: Sequence[tuple[Any, ...]], first: Sequence[int]) -> pa.RecordBatch:
    schema = KINDS[kind].given
    columns = [
        pa.array(column, type) for column, type in zip(zip(*rows, strict=True), schema.types, strict=True)
    ]
    for index, name in enumerate(schema.names):
        if name in KINDS[kind].sentences:
            columns[index] = pa.array(columns[index].to_numpy() + np.asarray(first))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
