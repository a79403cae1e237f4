"""Raw prose, such as a web page's text or a book without headers: sentences and words are found in it.

A blank line ends a paragraph; with the option `paragraphs=lines` every line is one. Paragraphs are split into
sentences and sentences into words and signs as in the format `gutenberg`.
"""

from collections.abc import Iterator
from typing import Literal

from memtune.corpora.blocks.prose import ProseOptions, make_prose_blocks, split_paragraphs
from memtune.corpora.blocks.text_blocks import Block, Format
from memtune.corpora.sources.line_reader import LineReader


class PlainProseOptions(ProseOptions):
    """Those of prose; `paragraphs` end at blank lines or at every line."""

    paragraphs: Literal["blank-lines", "lines"] = "blank-lines"


def _read(reader: LineReader, options: PlainProseOptions) -> Iterator[Block]:
    lines = (line for _, line in reader.read_lines())
    paragraphs = lines if options.paragraphs == "lines" else split_paragraphs(lines, reader.name)
    return make_prose_blocks(paragraphs, options)


FORMAT = Format(
    _read,
    "raw prose: paragraphs are split into sentences, and sentences into words",
    options=PlainProseOptions,
)
