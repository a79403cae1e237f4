"""WikiText: a paragraph a line, headings as ` = Title = `, blank lines between.

Merity et al. (2017), "Pointer Sentinel Mixture Models". As in the usual count of its tokens, every line ends
with an `<eos>`, so a blank line is one `<eos>` alone; headings are text like any other.
"""

from collections.abc import Iterator

from memtune.corpora.sources import Block, LineReader, split_lines

__all__ = ["read"]


def read(reader: LineReader) -> Iterator[Block]:
    """Every line is a sentence, a blank one too."""
    for lines in reader.blocks():
        yield split_lines(lines)
