"""Raw text for models of characters or bytes: nothing is left out, as in text8 and enwik8.

Every character or byte is a token, several blanks in a row and blank lines included. A line feed becomes
`<eos>`; the end of the file adds one more unless a line feed is there. A line longer than 8,388,608 tokens
becomes several sentences.
"""

import codecs
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.blocks.text_blocks import SENTENCE_END, Block, Format, FormatOptions
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.tokenisation.tokeniser import name_byte, name_character
from memtune.errors import CorpusError

_MAX_LINE_TOKENS = 2**23
_LINE_FEED = ord("\n")
_BLANKS = (0x09, 0x0B, 0x0C, 0x0D, 0x20)

_UTF8_LEASTS = (0, 0x80, 0x800, 0x10000)
"""The least code points that take one byte, one more, and so on."""

Codes = npt.NDArray[np.uint32]


class RawOptions(FormatOptions):
    """`unit` is what a token is; an import takes it from --tokens."""

    unit: Literal["characters", "bytes"] = "characters"


def _read(reader: LineReader, options: RawOptions) -> Iterator[Block]:
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
                yield np.frombuffer(decoder.decode(chunk).encode("utf-32-le"), np.uint32)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{reader.name}: not UTF-8 ({error.reason}); import its bytes with --tokens bytes"
        ) from None


def _make_block(codes: Codes, unit: str) -> Block:
    """The block of whole lines; its words are the names of the characters or bytes."""
    if unit == "characters" and not codes.all():
        raise CorpusError("a NUL, so the data are binary; import their bytes with --tokens bytes")
    distinct, indices = np.unique(codes, return_inverse=True)
    names = [_name(int(code), unit) for code in distinct]
    is_blank = np.isin(codes, (*_BLANKS, _LINE_FEED))
    words = int(np.count_nonzero(~is_blank & np.concatenate([[True], is_blank[:-1]])))
    tokens = pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(names, pa.string()))
    lengths = np.diff(np.flatnonzero(codes == _LINE_FEED), prepend=-1).astype(np.int32)
    size = (
        len(codes)
        if unit == "bytes"
        else sum(int(np.count_nonzero(codes >= least)) for least in _UTF8_LEASTS)
    )
    return Block(tokens, lengths, text_words=words, text_bytes=size)


def _name(code: int, unit: str) -> str:
    if code == _LINE_FEED:
        return SENTENCE_END
    return name_byte(code) if unit == "bytes" else name_character(chr(code))


FORMAT = Format(
    _read,
    "every character or byte as it is, for --tokens characters or bytes: text8, enwik8",
    options=RawOptions,
)
