"""Penn Treebank as prepared by Mikolov: one sentence per line, with `<unk>` and `N` in the text.

Both are ordinary words of the text; one `<eos>` closes each line. Some programs count a blank line as
one more `<eos>` and others skip it, so it is refused.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from memtune.corpora.blocks.text_blocks import Block, Format, split_lines
from memtune.corpora.sources.line_reader import LineReader
from memtune.values import Value

_BLANK_LINE_REASON = 'a blank line; format "text" skips those, "wikitext" counts an <eos> for each'


def _read(reader: LineReader, _: Value) -> Iterator[Block]:
    """Every line is a sentence; a blank one is bad."""
    for lines in reader.read_blocks():
        block = split_lines(lines)
        blank = np.flatnonzero(block.lengths == 1)
        reader.count_good(len(lines) - len(blank))
        for index in blank:
            reader.report_bad(reader.line_number(int(index)), _BLANK_LINE_REASON)
        yield split_lines(lines.filter(pa.array(block.lengths > 1))) if len(blank) else block


FORMAT = Format(_read, "Penn Treebank as prepared by Mikolov: one sentence per line, no blank lines")
