"""Pairs of sentences, one a line: premise TAB hypothesis TAB 0, 1 or 2 (entailment, neutral, contradiction).

Words are separated by whitespace.
"""

from collections.abc import Iterator

from memtune.corpora.annotations import INFERENCES
from memtune.corpora.examples import Example, parsed_blocks
from memtune.corpora.formats.snli import pair
from memtune.corpora.sources import BadLineError, Block, Format, LineReader
from memtune.values import Value

__all__ = ["FORMAT"]

_COLUMNS = 3
_LABELS = {str(index): index for index in range(len(INFERENCES))}


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.lines() if line.strip())
    return parsed_blocks(reader, lines, _example)


def _example(line: str) -> Example:
    columns = line.split("\t")
    if len(columns) != _COLUMNS:
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {_COLUMNS}")
    premise, hypothesis, label = columns
    if label.strip() not in _LABELS:
        raise BadLineError(f'the label "{label}" is none of {", ".join(_LABELS)}')
    return pair(premise.split(), hypothesis.split(), _LABELS[label.strip()])


FORMAT = Format(
    _read,
    "premise TAB hypothesis TAB label: 0 entailment, 1 neutral, 2 contradiction",
    annotations=("inference",),
)
