"""Pairs of sentences with a label, one a line: SNLI as published, as JSON, or as three columns.

Bowman et al. (2015), "A large annotated corpus for learning natural language inference". The published files
are `.jsonl`, or `.txt` with TAB-separated columns, and their words are those of the binary parse. JSON of
Hugging Face has `premise`, `hypothesis` and `label`, plain sentences, which are split as prose is. The format
`snli-tsv` is premise TAB hypothesis TAB 0, 1 or 2 (entailment, neutral, contradiction), words separated by
whitespace. Pairs without an agreed label (`-` or -1) are left out and counted.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from memtune.corpora.blocks.prose import tokenise, unescape_treebank_word
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Example, Format, parse_blocks
from memtune.corpora.formats.records import parse_json_line
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.annotations import INFERENCE_LABELS
from memtune.errors import CorpusError
from memtune.values import Value

_FIELDS = ("gold_label", "sentence1_binary_parse", "sentence2_binary_parse")
_PLAIN_FIELDS = ("label", "premise", "hypothesis")
NO_LABEL = ("-", "-1")
LABELS = {name: index for index, label in enumerate(INFERENCE_LABELS) for name in (label, str(index))}
"""The index of a label by its name and by its number."""


def make_pair(premise: list[str], hypothesis: list[str], label: int) -> Example:
    """Two sentences of words and the label of the pair."""
    if not premise or not hypothesis:
        raise BadLineError("a sentence without words")
    return Example([premise, hypothesis], {"inference": [(0, 1, label)]})


def count_unlabelled(reader: LineReader) -> None:
    """Count a pair that is left out."""
    reader.count_skipped("pairs without a label that annotators agreed on")


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
    reader: LineReader, fields_of: Callable[[str], Mapping[str, object]], line: str
) -> Example | None:
    fields = fields_of(line)
    names, split = (_PLAIN_FIELDS, tokenise) if "premise" in fields else (_FIELDS, _split_parse)
    label, premise, hypothesis = (fields.get(name) for name in names)
    if str(label) in NO_LABEL:
        count_unlabelled(reader)
        return None
    if str(label) not in LABELS:
        raise BadLineError(f'the label "{label}" is none of {", ".join(INFERENCE_LABELS)}')
    words = [split(_check_text(text)) for text in (premise, hypothesis)]
    return make_pair(words[0], words[1], LABELS[str(label)])


def _parse_json(line: str) -> Mapping[str, object]:
    fields = parse_json_line(line)
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    return fields


def _parse_columns(names: list[str], line: str) -> Mapping[str, str]:
    columns = line.split("\t")
    if len(columns) != len(names):
        raise BadLineError(f"{len(columns)} TAB-separated columns instead of {len(names)}")
    return dict(zip(names, columns, strict=True))


def _check_text(text: object) -> str:
    if not isinstance(text, str) or "\0" in text:
        raise BadLineError("a pair without its binary parses, or its premise and hypothesis")
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON may escape one half of a surrogate pair
        raise BadLineError("a lone surrogate, which no text may contain") from None
    return text


def _split_parse(parse: str) -> list[str]:
    return [unescape_treebank_word(part) for part in parse.split() if part not in ("(", ")")]


SNLI = Format(
    _read,
    "SNLI as published, .jsonl or .txt, or JSON Lines with premise, hypothesis and label",
    annotations=("inference",),
)


_COLUMN_COUNT = 3


def _read_tsv(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.read_lines() if line.strip())
    return parse_blocks(reader, lines, partial(_parse_row, reader))


def _parse_row(reader: LineReader, line: str) -> Example | None:
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


SNLI_TSV = Format(
    _read_tsv,
    "premise TAB hypothesis TAB label: 0 entailment, 1 neutral, 2 contradiction",
    annotations=("inference",),
)
