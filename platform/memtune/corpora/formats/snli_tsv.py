"""Pairs of sentences, one a line: premise TAB hypothesis TAB 0, 1 or 2 (entailment, neutral, contradiction).

Words are separated by whitespace. Pairs with the label -1, on which annotators did not agree, are left out.
"""

from collections.abc import Iterator
from functools import partial

from memtune.corpora.blocks.example_blocks import Example, parse_blocks
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format
from memtune.corpora.formats.snli import LABELS, NO_LABEL, count_unlabelled, make_pair
from memtune.corpora.sources.line_reader import LineReader
from memtune.values import Value

_COLUMN_COUNT = 3


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.read_lines() if line.strip())
    return parse_blocks(reader, lines, partial(_parse_example, reader))


def _parse_example(reader: LineReader, line: str) -> Example | None:
    columns = line.split("\t")
    if len(columns) != _COLUMN_COUNT:
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {_COLUMN_COUNT}")
    premise, hypothesis, label = columns
    if label.strip() in NO_LABEL:
        count_unlabelled(reader)
        return None
    if label.strip() not in LABELS:
        raise BadLineError(f'the label "{label}" is none of 0, 1, 2')
    return make_pair(premise.split(), hypothesis.split(), LABELS[label.strip()])


FORMAT = Format(
    _read,
    "premise TAB hypothesis TAB label: 0 entailment, 1 neutral, 2 contradiction",
    annotations=("inference",),
)
