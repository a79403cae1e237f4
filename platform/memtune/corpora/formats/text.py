"""Plain text: a sentence a line, words separated by whitespace; blank lines are skipped."""

from collections.abc import Iterator

import pyarrow.compute as pc

from memtune.corpora.sources import Block, LineReader, split_lines

__all__ = ["read"]


def read(reader: LineReader) -> Iterator[Block]:
    """Every line that has a word is a sentence."""
    for lines in reader.blocks():
        blank = pc.utf8_is_space(lines)
        yield split_lines(lines.filter(pc.invert(blank)) if pc.any(blank).as_py() else lines)
