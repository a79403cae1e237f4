"""Stanford Sentiment Treebank: a bracketed tree a line, a label from 0 to 4 at every node.

Socher et al. (2013), "Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank".
`(3 (2 It) (4 works))`: every node is a phrase, a span of the sentence, and the root is the sentence. Brackets
and signs written as `-LRB-` or `\\/` become themselves.
"""

import re
from collections.abc import Iterator

from memtune.corpora.annotations import SENTIMENTS
from memtune.corpora.examples import Example, parsed_blocks
from memtune.corpora.sources import BadLineError, Block, Format, LineReader
from memtune.corpora.tokenising import without_escapes
from memtune.values import Value

__all__ = ["FORMAT"]

# Of a tree: an opening bracket with its label, a closing bracket, or a leaf, which may hold a hard space.
_PARTS = re.compile(r"\(\s*([^\s()]*)|(\))|([^ \t()]+)")


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    lines = ((number, line) for number, line in reader.lines() if line.strip())
    return parsed_blocks(reader, lines, _example)


def _example(line: str) -> Example:
    words: list[str] = []
    phrases: list[tuple[int, int, int]] = []  # start, stop, label, by start of the phrase
    waiting: list[int] = []  # phrases not closed yet
    for label, closing, leaf in _PARTS.findall(line):
        if phrases and not waiting:
            raise BadLineError("something follows the tree")
        if leaf:
            if not waiting:
                raise BadLineError("no tree but bare words")
            words += without_escapes(leaf).split()
        elif closing:
            phrase = waiting.pop()
            start, _, number = phrases[phrase]
            phrases[phrase] = (start, len(words), number)
        else:
            waiting.append(len(phrases))
            phrases.append((len(words), -1, _label(label)))
    if waiting:
        raise BadLineError(f"brackets left open: {len(waiting)}")
    if any(start == stop for start, stop, _ in phrases):
        raise BadLineError("a phrase without words")
    rows = [(0, *phrase, index == 0) for index, phrase in enumerate(phrases)]
    return Example([words], {"sentiment": rows})


def _label(text: str) -> int:
    if not text.isdecimal() or int(text) >= len(SENTIMENTS):
        raise BadLineError(f'the label "{text}" is not from 0 to {len(SENTIMENTS) - 1}')
    return int(text)


FORMAT = Format(
    _read,
    "Stanford Sentiment Treebank: a bracketed tree a line, a label from 0 to 4 at every node",
    annotations=("sentiment",),
)
