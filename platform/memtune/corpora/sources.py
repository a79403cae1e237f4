"""Text coming in: files as checked blocks of whole lines, and blocks of words going on."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.errors import CorpusError
from memtune.values import Value

__all__ = ["END", "BadLineError", "Block", "Format", "LineReader", "TextFile", "split_lines"]

END = "\0"
"""Stands in blocks of words for the end of a sentence; no text may hold it, so nothing else looks like it."""

BAD = "bad entries"
"""The reason under which what breaks its format is counted as skipped."""

BLOCK_BYTES = 4 * 2**20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


_BAD_SHARE = 0.01
"""Share of bad entries above which a file is not what it is said to be."""


@dataclass(frozen=True)
class TextFile:
    """A file in one of the FORMATS, or a folder for formats that read folders; options of its format."""

    path: Path
    format: str = "text"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Some whole sentences: their words one after another (Arrow strings), each sentence closed by END, and
    the number of words of each, END included.

    annotations: by kind, rows with the columns of KINDS[kind].given, whose sentences count from 0 within
    the block.
    """

    words: pa.Array
    lengths: npt.NDArray[np.int32]
    annotations: Mapping[str, pa.RecordBatch] = field(default_factory=dict)


class BadLineError(Exception):
    """A line breaks its format: `reason`, and `line` where it is another than the first of those in hand."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class LineReader:
    """Reads a text file once, as blocks of whole lines, checking and hashing what goes by.

    `bytes_read` counts, and `sha256` covers, what has been read so far. A byte order mark is left out of the
    text; a carriage return before a line end is whitespace. `skipped` counts what a format left out, by
    reason, `notes` say what else a user should know, and `besides` are the readers of other files it read
    along with this one.
    """

    def __init__(self, path: Path, block_bytes: int = BLOCK_BYTES, skip_bad: bool = False) -> None:
        self.path = path
        self.bytes_read = 0
        self.skipped: dict[str, int] = {}
        self.besides: list[LineReader] = []
        self.notes: list[str] = []
        self._skip_bad = skip_bad
        self._good = self._bad = 0
        self._last_bad = ""
        self._block_bytes = block_bytes
        self._hash = hashlib.sha256()
        self._start = 0  # of the block in hand: bytes and lines before it
        self._lines_before = 0

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of the bytes read."""
        return self._hash.hexdigest()

    def line_number(self, index: int) -> int:
        """Number in the file, from 1, of line `index`, from 0, of the block in hand."""
        return self._lines_before + index + 1

    def blocks(self) -> Iterator[pa.Array]:
        """Arrow strings, one a line with its line feed; a CorpusError for anything but UTF-8 text."""
        try:
            with self.path.open("rb") as file:
                for data in self._whole_lines(iter(lambda: file.read(self._block_bytes), b"")):
                    lines = self._checked(data)
                    yield lines
                    self._start += len(data)
                    self._lines_before += len(lines)
        except OSError as error:
            raise CorpusError(f"cannot read {self.path}: {error.strerror}") from None

    def content(self) -> bytes:
        """The whole file, not decoded; a CorpusError for a binary one."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise CorpusError(f"cannot read {self.path}: {error.strerror}") from None
        self._hash.update(data)
        self.bytes_read += len(data)
        self._refuse_binary(data)
        return data

    def lines(self) -> Iterator[tuple[int, str]]:
        """Every line with its number from 1, without its line end."""
        for block in self.blocks():
            first = self.line_number(0)
            for index, line in enumerate(block.to_pylist()):
                yield first + index, line.rstrip("\r\n")

    def beside(self, path: Path) -> "LineReader":
        """A reader of a file that belongs to this one."""
        self.besides.append(LineReader(path, self._block_bytes, self._skip_bad))
        return self.besides[-1]

    def skip(self, reason: str) -> None:
        """Counts an item that the format leaves out on purpose."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def good(self, entries: int = 1) -> None:
        """Counts entries (lines, questions, sentences of several lines) that keep to the format."""
        self._good += entries

    def bad(self, line: int, reason: str) -> None:
        """Counts an entry that breaks the format; a CorpusError unless bad ones are skipped."""
        if not self._skip_bad:
            way_out = "--skip-bad leaves it out" if self._good else "other formats: memtune corpus formats"
            raise CorpusError(f"{self.path}: line {line}: {reason}; {way_out}")
        self.skip(BAD)
        self._bad += 1
        self._last_bad = f"line {line}: {reason}"

    def check_bad(self) -> None:
        """A CorpusError where more than 1 % of the entries are bad; call it at the end."""
        entries = self._good + self._bad
        if self._bad > _BAD_SHARE * entries:
            raise CorpusError(
                f"{self.path}: {self._bad} of {entries} entries are bad, more than {_BAD_SHARE:.0%}; "
                f"the last one: {self._last_bad}"
            )

    def _whole_lines(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        rest = b""
        for chunk in chunks:
            self._hash.update(chunk)
            self.bytes_read += len(chunk)
            data = rest + chunk
            cut = data.rfind(b"\n") + 1
            rest = data[cut:]
            if cut:
                yield data[:cut]
            self._refuse_endless(rest)
        if rest:
            yield rest + b"\n"

    def _checked(self, data: bytes) -> pa.Array:
        self._refuse_binary(data)
        marked = self._start == 0 and data.startswith(_BYTE_ORDER_MARK)
        lines = _lines(data, len(_BYTE_ORDER_MARK) if marked else 0)
        try:
            lines.validate(full=True)
        except pa.ArrowInvalid:
            self._refuse_encoding(data)
        return lines

    def _refuse_binary(self, data: bytes) -> None:
        nul = data.find(b"\0")
        if nul >= 0:
            raise CorpusError(
                f"{self._place(data, nul)}: a NUL byte, so no UTF-8 text but a binary file or UTF-16"
            )

    def _refuse_encoding(self, data: bytes) -> None:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{self._place(data, error.start)}: not UTF-8 (0x{data[error.start]:02x}, {error.reason}); "
                "convert the file to UTF-8 first"
            ) from None

    def _refuse_endless(self, rest: bytes) -> None:
        if len(rest) > self._block_bytes:
            self._refuse_binary(rest)
            raise CorpusError(
                f"{self._place(b'', 0)}: a line of more than {self._block_bytes} bytes; "
                "give one sentence or paragraph a line"
            )

    def _place(self, data: bytes, offset: int) -> str:
        line = self.line_number(data.count(b"\n", 0, offset))
        return f"{self.path}: byte {self._start + offset}, line {line}"


@dataclass(frozen=True)
class Format:
    """A text format: what is a sentence in the lines of a file, and what is known of it.

    read: the blocks of a file, given a value of `options`; a CorpusError names the line that breaks the
    format. summary: one line for people. annotations: kinds its blocks may have. folder: whether it reads
    folders of files too.
    """

    read: Callable[[LineReader, Any], Iterator[Block]]
    summary: str
    annotations: tuple[str, ...] = ()
    options: type[Value] = Value
    folder: bool = False


def split_lines(lines: pa.Array) -> Block:
    """A sentence a line, words separated by whitespace as in `str.split`; END alone for a blank line."""
    words = pc.utf8_split_whitespace(_closed(pc.utf8_trim_whitespace(lines)))
    return Block(words.flatten(), np.diff(words.offsets.to_numpy()))


def _closed(lines: pa.Array) -> pa.Array:
    """Trimmed lines with END as a last word.

    So none starts or ends with whitespace, where Arrow's splitting yields empty words and, looking past the
    end for more whitespace, may miss a separator.
    """
    closed = pc.binary_join_element_wise(lines, END, " ")
    blank = pc.equal(pc.binary_length(lines), 0)
    return pc.if_else(blank, END, closed) if pc.any(blank).as_py() else closed


def _lines(data: bytes, start: int) -> pa.Array:
    """A view of the bytes from `start` on as strings, one a line with its line feed."""
    line_feeds = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    offsets = np.empty(len(line_feeds) + 1, np.int32)
    offsets[0] = start
    np.add(line_feeds, 1, out=offsets[1:], casting="unsafe")
    return pa.StringArray.from_buffers(len(line_feeds), pa.py_buffer(offsets), pa.py_buffer(data))
