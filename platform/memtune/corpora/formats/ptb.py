"""Penn Treebank as Mikolov prepared it: a sentence a line, `<unk>` and `N` already in place.

Both are ordinary words of the text; one `<eos>` closes each line. A blank line would count as one more
`<eos>` in some programs and as nothing in others, so it is refused.
"""

from collections.abc import Iterator

import numpy as np

from memtune.corpora.sources import Block, Format, LineReader, split_lines
from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["FORMAT"]


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    """Every line is a sentence; a CorpusError for a blank one."""
    for lines in reader.blocks():
        block = split_lines(lines)
        blank = np.flatnonzero(block.lengths == 1)
        if len(blank):
            raise CorpusError(
                f"{reader.path}: line {reader.line_number(int(blank[0]))} is blank; "
                'format "text" skips blank lines, "wikitext" counts an <eos> for each'
            )
        yield block


FORMAT = Format(_read, "Penn Treebank as Mikolov prepared it: a sentence a line, none blank")
