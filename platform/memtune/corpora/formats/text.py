"""Plain text: one sentence per line, words separated by whitespace; blank lines are skipped."""

from collections.abc import Iterator

import pyarrow.compute as pc

from memtune.corpora.blocks.text_blocks import Block, Format, split_lines
from memtune.corpora.sources.line_reader import LineReader
from memtune.values import Value


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    """Every line that has a word is a sentence."""
    for lines in reader.read_blocks():
        blank = pc.utf8_is_space(lines)
        yield split_lines(lines.filter(pc.invert(blank)) if pc.any(blank).as_py() else lines)


FORMAT = Format(_read, "one sentence per line, words separated by whitespace; blank lines are skipped")
