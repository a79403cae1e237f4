"""Texts without annotations: one sentence a line, words separated by whitespace, or raw characters and bytes.

The formats with one sentence a line differ in what a blank line is.

- Plain text skips blank lines.
- Penn Treebank as prepared by Mikolov has `<unk>` and `N` in the text, which are ordinary words, and one
  `<eos>` closes each line. Some programs count a blank line as one more `<eos>` and others skip it, so it is
  refused.
- WikiText (Merity et al. 2017, "Pointer Sentinel Mixture Models") has one paragraph a line, headings as ` =
  Title = ` and blank lines between. As in the usual count of its tokens, every line ends with an `<eos>`, so
  a blank line is one `<eos>` alone; headings are text like any other.

Of raw text, for models of characters or bytes, nothing is left out, as in text8 and enwik8. Every character
or byte is a token, several blanks in a row and blank lines included. A line feed becomes `<eos>`; the end of
the file adds one more unless a line feed is there. A line longer than 8,388,608 tokens becomes several
sentences.
"""

import codecs
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.text_blocks import SENTENCE_END, Block, Format, FormatOptions, split_lines
from memtune.corpora.tokenisation.tokeniser import name_byte, name_character
from memtune.errors import CorpusError
from memtune.values import Value

_MAX_LINE_TOKENS = 2**23
_LINE_FEED = ord("\n")
_BLANKS = (0x09, 0x0B, 0x0C, 0x0D, 0x20)

Codes = npt.NDArray[np.uint32]


def _make_line_format(blank_lines: Literal["skip", "refuse", "count"], summary: str) -> Format:
    """A format in which every line that is not blank is a sentence."""

    def read(reader: LineReader, _: Value) -> Iterator[Block]:
        for lines in reader.read_blocks():
            blank = pc.utf8_is_space(lines)
            if blank_lines == "refuse":
                places = np.flatnonzero(blank.to_numpy(zero_copy_only=False))
                reader.count_good(len(lines) - len(places))
                for place in places:
                    reader.report_bad(reader.line_number(int(place)), _BLANK_LINE_REASON)
            is_whole = blank_lines == "count" or not pc.any(blank).as_py()
            yield split_lines(lines if is_whole else lines.filter(pc.invert(blank)))

    return Format(read, summary)


_BLANK_LINE_REASON = 'a blank line; format "text" skips those, "wikitext" counts an <eos> for each'
TEXT = _make_line_format(
    "skip", "one sentence per line, words separated by whitespace; blank lines are skipped"
)
PTB = _make_line_format(
    "refuse", "Penn Treebank as prepared by Mikolov: one sentence per line, no blank lines"
)
WIKITEXT = _make_line_format("count", "WikiText: one paragraph per line; a blank line counts as one <eos>")


class RawOptions(FormatOptions):
    """`unit` is what a token is; an import takes it from --tokens."""

    unit: Literal["characters", "bytes"] = "characters"


def _read_raw(reader: LineReader, options: RawOptions) -> Iterator[Block]:
    rest = np.empty(0, np.uint32)
    for codes in _read_codes(reader, options.unit):
        joined = np.concatenate([rest, codes])
        ends = np.flatnonzero(joined == _LINE_FEED)
        cut = int(ends[-1]) + 1 if len(ends) else 0
        if cut:
            yield _make_block(joined[:cut], options.unit)
        rest = joined[cut:]
        while len(rest) >= _MAX_LINE_TOKENS:
            yield _make_block(np.append(rest[:_MAX_LINE_TOKENS], np.uint32(_LINE_FEED)), options.unit)
            rest = rest[_MAX_LINE_TOKENS:]
    if len(rest):
        yield _make_block(np.append(rest, np.uint32(_LINE_FEED)), options.unit)


def _read_codes(reader: LineReader, unit: str) -> Iterator[Codes]:
    """Code points, or bytes, of the chunks of a file."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in reader.read_chunks():
            if unit == "bytes":
                yield np.frombuffer(chunk, np.uint8).astype(np.uint32)
            else:
                codes = np.frombuffer(decoder.decode(chunk).encode("utf-32-le"), np.uint32)
                if not codes.all():
                    raise CorpusError(
                        f"{reader.name}: a NUL, so the data are binary; import its bytes with --tokens bytes"
                    )
                yield codes
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{reader.name}: not UTF-8 ({error.reason}); import its bytes with --tokens bytes"
        ) from None


def _make_block(codes: Codes, unit: str) -> Block:
    """The block of whole lines; its words are the names of the characters or bytes."""
    distinct, indices = np.unique(codes, return_inverse=True)
    spell = name_byte if unit == "bytes" else lambda code: name_character(chr(code))
    names = [SENTENCE_END if code == _LINE_FEED else spell(int(code)) for code in distinct]
    is_blank = np.isin(codes, (*_BLANKS, _LINE_FEED))
    words = int(np.count_nonzero(~is_blank & np.concatenate([[True], is_blank[:-1]])))
    tokens = pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(names, pa.string()))
    lengths = np.diff(np.flatnonzero(codes == _LINE_FEED), prepend=-1).astype(np.int32)
    return Block(tokens, lengths, text_words=words)


RAW = Format(
    _read_raw,
    "every character or byte as it is, for --tokens characters or bytes: text8, enwik8",
    options=RawOptions,
)
