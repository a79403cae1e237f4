"""Pairs of sentences, one a line: premise TAB hypothesis TAB 0, 1 or 2 (entailment, neutral, contradiction).

Words are separated by whitespace.
"""

from collections.abc import Iterator

from memtune.corpora.blocks.example_blocks import Example, parse_blocks
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format
from memtune.corpora.formats.snli import make_pair
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.annotations import INFERENCE_LABELS
from memtune.values import Value

__all__ = ["FORMAT"]

_COLUMN_COUNT = 3
_LABEL_INDICES = {str(index): index for index in range(len(INFERENCE_LABELS))}


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.read_lines() if line.strip())
    return parse_blocks(reader, lines, _parse_example)


def _parse_example(line: str) -> Example:
    columns = line.split("\t")
    if len(columns) != _COLUMN_COUNT:
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {_COLUMN_COUNT}")
    premise, hypothesis, label = columns
    if label.strip() not in _LABEL_INDICES:
        raise BadLineError(f'the label "{label}" is none of {", ".join(_LABEL_INDICES)}')
    return make_pair(premise.split(), hypothesis.split(), _LABEL_INDICES[label.strip()])


FORMAT = Format(
    _read,
    "premise TAB hypothesis TAB label: 0 entailment, 1 neutral, 2 contradiction",
    annotations=("inference",),
)
