"""Sentences with labels: pairs that entail or contradict each other, and trees of sentiment.

SNLI has one pair a line (Bowman et al. 2015, "A large annotated corpus for learning natural language
inference"): as published, as JSON, or as three columns. The published files are `.jsonl`, or `.txt` with
TAB-separated columns, and their words are those of the binary parse. JSON of Hugging Face has `premise`,
`hypothesis` and `label`, plain sentences, which are split as prose is, Chinese and Japanese into characters.
The format `snli-tsv` is premise TAB hypothesis TAB 0, 1 or 2 (entailment, neutral, contradiction), words
separated by whitespace. Pairs without an agreed label (`-` or -1) are left out and counted.

Stanford Sentiment Treebank, one bracketed tree a line, a label from 0 to 4 at every node (Socher et al. 2013,
"Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank"). `(3 (2 It) (4 works))`:
every node is a phrase, which is a span of the sentence; the root is the sentence. `-LRB-` and `\\/` become
the signs that they stand for.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from memtune.corpora.formats.prose_texts import split_characters, unescape_treebank_word
from memtune.corpora.formats.records import parse_json_line
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.annotations import INFERENCE_LABELS, SENTIMENT_LABELS
from memtune.corpora.text_blocks import (
    BadLineError,
    Block,
    Example,
    Format,
    has_lone_surrogate,
    parse_blocks,
    shorten,
    split_columns,
)
from memtune.errors import CorpusError
from memtune.values import Value

_FIELDS = ("gold_label", "sentence1_binary_parse", "sentence2_binary_parse")
_PLAIN_FIELDS = ("label", "premise", "hypothesis")
_NO_LABEL = ("-", "-1")
_LABELS = {name: index for names in (INFERENCE_LABELS, "012") for index, name in enumerate(names)}
"""The index of a label by its name and by its number."""


def _read_pairs(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = reader.read_full_lines()
    first = next(lines, None)
    if first is None:
        return iter(())
    is_json, header = first[1].startswith("{"), first[1].split("\t")
    if not is_json and not set(_FIELDS) <= set(header):
        raise CorpusError(
            f"{reader.name}: line {first[0]}: neither JSON nor a header with {', '.join(_FIELDS)}"
        )

    def parse(line: str) -> Example | None:
        columns = () if is_json else split_columns(line, len(header))
        fields = parse_json_line(line) if is_json else dict(zip(header, columns, strict=True))
        if not isinstance(fields, dict):
            raise BadLineError("not a JSON object")
        names, split = (_PLAIN_FIELDS, split_characters) if "premise" in fields else (_FIELDS, _split_parse)
        label, *texts = (fields.get(name) for name in names)
        return _make_pair(reader, str(label), texts, split)

    return parse_blocks(reader, chain([first], lines) if is_json else lines, parse)


def _split_parse(parse: str) -> list[str]:
    return [unescape_treebank_word(part) for part in parse.split() if part not in ("(", ")")]


def _read_columns(reader: LineReader, _: Value) -> Iterator[Block]:
    def parse(line: str) -> Example | None:
        premise, hypothesis, label = split_columns(line, 3)
        return _make_pair(reader, label.strip(), (premise, hypothesis), str.split)

    return parse_blocks(reader, reader.read_full_lines(), parse)


def _make_pair(
    reader: LineReader, label: str, texts: Sequence[object], split: Callable[[str], list[str]]
) -> Example | None:
    """A labelled pair of sentences; None for a pair without a label, which is counted."""
    if label in _NO_LABEL:
        reader.count_skipped("pairs without a label that annotators agreed on")
        return None
    if label not in _LABELS:
        raise BadLineError(f'the label "{label}" is none of {", ".join(_LABELS)}')
    sentences = []
    for text in texts:
        if not isinstance(text, str) or "\0" in text:
            raise BadLineError("a pair without its binary parses, or its premise and hypothesis")
        if has_lone_surrogate(text):
            raise BadLineError("a lone surrogate, which no text may contain")
        sentences.append(split(text))
    if not all(sentences):
        raise BadLineError("a sentence without words")
    return Example(sentences, {"inference": [(0, 1, _LABELS[label])]})


SNLI = Format(
    _read_pairs,
    "SNLI as published, .jsonl or .txt, or JSON Lines with premise, hypothesis and label",
    annotations=("inference",),
)
SNLI_TSV = Format(
    _read_columns,
    "premise TAB hypothesis TAB label: 0 entailment, 1 neutral, 2 contradiction",
    annotations=("inference",),
)

_SENTIMENT_LABELS = [str(label) for label in range(len(SENTIMENT_LABELS))]
# An opening bracket with its label, a closing bracket, or a leaf, which may contain a no-break space.
_TREE_TOKEN_PATTERN = re.compile(r"\(\s*([^\s()]*)|(\))|([^ \t()]+)")


def _parse_tree(line: str) -> Example:
    words: list[str] = []
    phrases: list[tuple[int, int, int]] = []  # start, stop, label, by start of the phrase
    waiting: list[int] = []  # phrases whose bracket is open
    for label, closing, leaf in _TREE_TOKEN_PATTERN.findall(line):
        if phrases and not waiting:
            raise BadLineError("there is text after the tree")
        if leaf:
            if not waiting:
                raise BadLineError("words without a tree")
            words += unescape_treebank_word(leaf).split()
        elif closing:
            if not waiting:
                raise BadLineError("a closing bracket without an opening one")
            phrase = waiting.pop()
            start, _, number = phrases[phrase]
            phrases[phrase] = (start, len(words), number)
        else:
            waiting.append(len(phrases))
            if label not in _SENTIMENT_LABELS:
                most = _SENTIMENT_LABELS[-1]
                raise BadLineError(f'the label "{shorten(label)}" is not from 0 to {most}')
            phrases.append((len(words), -1, _SENTIMENT_LABELS.index(label)))
    if waiting:
        raise BadLineError(f"brackets left open: {len(waiting)}")
    if any(start == stop for start, stop, _ in phrases):
        raise BadLineError("a phrase without words")
    rows = [(0, *phrase, index == 0) for index, phrase in enumerate(phrases)]
    return Example([words], {"sentiment": rows})


SST = Format(
    lambda reader, options: parse_blocks(reader, reader.read_full_lines(), _parse_tree),
    "Stanford Sentiment Treebank: one bracketed tree per line, a label from 0 to 4 at every node",
    annotations=("sentiment",),
)
