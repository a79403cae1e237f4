"""Texts with one sentence a line, words separated by whitespace; they differ in what a blank line is.

- Plain text skips blank lines.
- Penn Treebank as prepared by Mikolov has `<unk>` and `N` in the text, which are ordinary words, and one
  `<eos>` closes each line. Some programs count a blank line as one more `<eos>` and others skip it, so it is
  refused.
- WikiText (Merity et al. 2017, "Pointer Sentinel Mixture Models") has one paragraph a line, headings as ` =
  Title = ` and blank lines between. As in the usual count of its tokens, every line ends with an `<eos>`, so
  a blank line is one `<eos>` alone; headings are text like any other.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.blocks.text_blocks import Block, Format, split_lines
from memtune.corpora.sources.line_reader import LineReader
from memtune.values import Value


def _read_text(reader: LineReader, _: Value) -> Iterator[Block]:
    """Every line that has a word is a sentence."""
    for lines in reader.read_blocks():
        blank = pc.utf8_is_space(lines)
        yield split_lines(lines.filter(pc.invert(blank)) if pc.any(blank).as_py() else lines)


TEXT = Format(_read_text, "one sentence per line, words separated by whitespace; blank lines are skipped")


_BLANK_LINE_REASON = 'a blank line; format "text" skips those, "wikitext" counts an <eos> for each'


def _read_ptb(reader: LineReader, _: Value) -> Iterator[Block]:
    """Every line is a sentence; a blank one is bad."""
    for lines in reader.read_blocks():
        block = split_lines(lines)
        blank = np.flatnonzero(block.lengths == 1)
        reader.count_good(len(lines) - len(blank))
        for index in blank:
            reader.report_bad(reader.line_number(int(index)), _BLANK_LINE_REASON)
        yield split_lines(lines.filter(pa.array(block.lengths > 1))) if len(blank) else block


PTB = Format(_read_ptb, "Penn Treebank as prepared by Mikolov: one sentence per line, no blank lines")


def _read_wikitext(reader: LineReader, _: Value) -> Iterator[Block]:
    """Every line is a sentence, a blank one too."""
    for lines in reader.read_blocks():
        yield split_lines(lines)


WIKITEXT = Format(_read_wikitext, "WikiText: one paragraph per line; a blank line counts as one <eos>")
