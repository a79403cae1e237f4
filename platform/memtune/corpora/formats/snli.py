"""SNLI as published: one pair of sentences per line, as `.jsonl` or as `.txt` with TAB-separated columns.

Bowman et al. (2015), "A large annotated corpus for learning natural language inference". The words are those
of the binary parse. Pairs without an agreed label (`-`) are left out and counted.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from memtune.corpora.blocks.english_words import unescape_treebank_word
from memtune.corpora.blocks.example_blocks import Example, parse_blocks
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format
from memtune.corpora.formats.records.json_lines import parse_json_line
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.annotations import INFERENCE_LABELS
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT", "make_pair"]

_FIELDS = ("gold_label", "sentence1_binary_parse", "sentence2_binary_parse")
_NO_LABEL = "-"


def make_pair(premise: list[str], hypothesis: list[str], label: int) -> Example:
    """Two sentences of words and the label of the pair."""
    if not premise or not hypothesis:
        raise BadLineError("a sentence without words")
    return Example([premise, hypothesis], {"inference": [(0, 1, label)]})


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.read_lines() if line.strip())
    first = next(lines, None)
    if first is None:
        return iter(())
    if first[1].startswith("{"):
        return parse_blocks(reader, _prepend(first, lines), partial(_parse_example, reader, _parse_json))
    columns = partial(_parse_columns, first[1].split("\t"))
    if not set(_FIELDS) <= set(first[1].split("\t")):
        raise CorpusError(
            f"{reader.name}: line {first[0]}: neither JSON nor a header with {', '.join(_FIELDS)}"
        )
    return parse_blocks(reader, lines, partial(_parse_example, reader, columns))


def _prepend(first: tuple[int, str], lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield first
    yield from lines


def _parse_example(
    reader: LineReader, fields_of: Callable[[str], Mapping[str, str]], line: str
) -> Example | None:
    fields = fields_of(line)
    label, premise, hypothesis = (fields.get(name) for name in _FIELDS)
    if label == _NO_LABEL:
        reader.count_skipped("pairs without a label that annotators agreed on")
        return None
    if label not in INFERENCE_LABELS:
        raise BadLineError(f'the label "{label}" is none of {", ".join(INFERENCE_LABELS)}')
    return make_pair(_extract_words(premise), _extract_words(hypothesis), INFERENCE_LABELS.index(label))


def _parse_json(line: str) -> Mapping[str, str]:
    fields = parse_json_line(line)
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    return fields


def _parse_columns(names: list[str], line: str) -> Mapping[str, str]:
    columns = line.split("\t")
    if len(columns) != len(names):
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {len(names)}")
    return dict(zip(names, columns, strict=True))


def _extract_words(parse: object) -> list[str]:
    if not isinstance(parse, str) or "\0" in parse:
        raise BadLineError("a pair without its binary parses")
    try:
        parse.encode()
    except UnicodeEncodeError:  # JSON may escape one half of a surrogate pair
        raise BadLineError("a lone surrogate, which no text may contain") from None
    return [unescape_treebank_word(part) for part in parse.split() if part not in ("(", ")")]


FORMAT = Format(
    _read,
    "SNLI as published: pairs of sentences, .jsonl or .txt, words from the binary parse",
    annotations=("inference",),
)
