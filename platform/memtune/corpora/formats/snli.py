"""SNLI as published: a pair of sentences a line, as `.jsonl` or as `.txt` with TAB-separated columns.

Bowman et al. (2015), "A large annotated corpus for learning natural language inference". Words are those of
the binary parse. Pairs on whose label the annotators did not agree (`-`) are left out and counted.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from memtune.corpora.annotations import INFERENCES
from memtune.corpora.examples import Example, parsed_blocks
from memtune.corpora.sources import BadLineError, Block, Format, LineReader
from memtune.corpora.tokenising import without_escapes
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT", "pair"]

_FIELDS = ("gold_label", "sentence1_binary_parse", "sentence2_binary_parse")
_NO_LABEL = "-"


def pair(premise: list[str], hypothesis: list[str], label: int) -> Example:
    """Two sentences of words and the label of the pair."""
    if not premise or not hypothesis:
        raise BadLineError("a sentence without words")
    return Example([premise, hypothesis], {"inference": [(0, 1, label)]})


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.lines() if line.strip())
    first = next(lines, None)
    if first is None:
        return iter(())
    if first[1].startswith("{"):
        return parsed_blocks(reader, _again(first, lines), partial(_example, reader, _of_json))
    columns = partial(_of_columns, first[1].split("\t"))
    if not set(_FIELDS) <= set(first[1].split("\t")):
        raise CorpusError(
            f"{reader.path}: line {first[0]}: neither JSON nor a header with {', '.join(_FIELDS)}"
        )
    return parsed_blocks(reader, lines, partial(_example, reader, columns))


def _again(first: tuple[int, str], lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from lines


def _example(reader: LineReader, fields_of: Callable[[str], Mapping[str, str]], line: str) -> Example | None:
    fields = fields_of(line)
    label, premise, hypothesis = (fields.get(name) for name in _FIELDS)
    if label == _NO_LABEL:
        reader.skip("pairs without a label that annotators agreed on")
        return None
    if label not in INFERENCES:
        raise BadLineError(f'the label "{label}" is none of {", ".join(INFERENCES)}')
    return pair(_words(premise), _words(hypothesis), INFERENCES.index(label))


def _of_json(line: str) -> Mapping[str, str]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadLineError(f"not JSON ({error})") from None
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    return fields


def _of_columns(names: list[str], line: str) -> Mapping[str, str]:
    columns = line.split("\t")
    if len(columns) != len(names):
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {len(names)}")
    return dict(zip(names, columns, strict=True))


def _words(parse: object) -> list[str]:
    if not isinstance(parse, str) or "\0" in parse:
        raise BadLineError("a pair without its binary parses")
    return [without_escapes(part) for part in parse.split() if part not in ("(", ")")]


FORMAT = Format(
    _read,
    "SNLI as published: pairs of sentences, .jsonl or .txt, words from the binary parse",
    annotations=("inference",),
)
