"""WikiText: one paragraph per line, headings as ` = Title = `, blank lines between.

Merity et al. (2017), "Pointer Sentinel Mixture Models". As in the usual count of its tokens, every line ends
with an `<eos>`, so a blank line is one `<eos>` alone; headings are text like any other.
"""

from collections.abc import Iterator

from memtune.corpora.blocks.text_blocks import Block, Format, split_lines
from memtune.corpora.sources.line_reader import LineReader
from memtune.values import Value


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    """Every line is a sentence, a blank one too."""
    for lines in reader.read_blocks():
        yield split_lines(lines)


FORMAT = Format(_read, "WikiText: one paragraph per line; a blank line counts as one <eos>")
