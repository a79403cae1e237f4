"""Stanford Sentiment Treebank: one bracketed tree per line, a label from 0 to 4 at every node.

Socher et al. (2013), "Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank".
`(3 (2 It) (4 works))`: every node is a phrase, which is a span of the sentence; the root is the sentence.
`-LRB-` and `\\/` become the signs that they stand for.
"""

import re
from collections.abc import Iterator

from memtune.corpora.blocks.prose import unescape_treebank_word
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Example, Format, parse_blocks, shorten
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.annotations import SENTIMENT_LABELS
from memtune.values import Value

_LABELS = [str(label) for label in range(len(SENTIMENT_LABELS))]
# An opening bracket with its label, a closing bracket, or a leaf, which may contain a no-break space.
_TREE_TOKEN_PATTERN = re.compile(r"\(\s*([^\s()]*)|(\))|([^ \t()]+)")


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.read_lines() if line.strip())
    return parse_blocks(reader, lines, _parse_example)


def _parse_example(line: str) -> Example:
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
            phrases.append((len(words), -1, _parse_label(label)))
    if waiting:
        raise BadLineError(f"brackets left open: {len(waiting)}")
    if any(start == stop for start, stop, _ in phrases):
        raise BadLineError("a phrase without words")
    rows = [(0, *phrase, index == 0) for index, phrase in enumerate(phrases)]
    return Example([words], {"sentiment": rows})


def _parse_label(text: str) -> int:
    if text not in _LABELS:
        raise BadLineError(f'the label "{shorten(text)}" is not from 0 to {len(SENTIMENT_LABELS) - 1}')
    return _LABELS.index(text)


FORMAT = Format(
    _read,
    "Stanford Sentiment Treebank: one bracketed tree per line, a label from 0 to 4 at every node",
    annotations=("sentiment",),
)
