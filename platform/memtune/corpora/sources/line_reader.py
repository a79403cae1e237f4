"""Read text files as validated blocks of whole lines, and record their digest, size and skipped entries."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from memtune.corpora.sources.source_file import CONVERSION_ADVICE, Location, SourceFile
from memtune.errors import CorpusError
from memtune.storage.digests import ContentDigest

BAD_ENTRIES = "bad entries"
"""The reason under which skipped entries that break their format are counted."""

BLOCK_BYTES = 4 * 2**20
"""Bytes read at once, and the longest line."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Some editors write CR CR LF, which ends one line. The pattern reads two bytes, so its time is linear.
_LONE_CARRIAGE_RETURN = re.compile(rb"\r[^\r\n]")

_MAX_BAD_SHARE = 0.01
"""With a larger share of bad entries the file probably has another format."""


class LineReader:
    """Reads a text file as blocks of whole lines; checks and hashes its bytes.

    `bytes_read` counts, and `sha256` covers, the bytes read so far. A byte order mark is not text.
    `skipped` counts the entries that a format leaves out, by reason. `notes` are remarks for the user.
    `companions` are the readers of the other files that belong to this one, and `source` is its own file.
    """

    def __init__(
        self, source: Location | SourceFile, block_bytes: int = BLOCK_BYTES, skip_bad: bool = False
    ) -> None:
        """Raises CorpusError for a location that cannot be a source."""
        self.source = source if isinstance(source, SourceFile) else SourceFile(source)
        self.name = self.source.name
        self.bytes_read = 0
        self.skipped: dict[str, int] = {}
        self.companions: list[LineReader] = []
        self.notes: list[str] = []
        self._skip_bad = skip_bad
        self._good_count = self._bad_count = 0
        self._last_bad = ""
        self._block_bytes = block_bytes
        self._content = ContentDigest()
        self._block_start_byte = 0  # bytes and lines before the current block
        self._block_start_line = 0

    @property
    def path(self) -> Path:
        """The path of a local source. Raises CorpusError for a remote one."""
        return self.source.local_path

    @property
    def is_folder(self) -> bool:
        """Whether the source is a folder or a pattern, whose files only its companions read."""
        return self.source.is_folder

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the source; None for a pipe. Raises CorpusError for a file that cannot be read."""
        with self._translate_errors():
            return self.source.size_bytes

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of the bytes read."""
        return self._content.sha256

    def close(self) -> None:
        """Deletes the copies of pipes, including those of the companions."""
        for companion in self.companions:
            companion.close()
        self.source.close()

    def line_number(self, index: int) -> int:
        """Number in the file, from 1, of line `index`, from 0, of the current block."""
        return self._block_start_line + index + 1

    def read_blocks(self) -> Iterator[pa.Array]:
        """Yields Arrow strings, one per line with its line feed. Raises CorpusError if not UTF-8."""
        for data in self._cut_at_line_ends(self.read_chunks()):
            lines = self._decode_lines(data)
            yield lines
            self._block_start_byte += len(data)
            self._block_start_line += len(lines)

    def read_chunks(self) -> Iterator[bytes]:
        """Yields the content, hashed but not checked."""
        with self._translate_errors():
            for data in self.source.read_chunks(self._block_bytes):
                self._content.add(data)
                self.bytes_read += len(data)
                yield data

    def read_content(self, max_bytes: int, fix: str) -> bytes:
        """The bytes of the whole file. Raises CorpusError for a NUL byte and for a larger file."""
        data = bytearray()
        for chunk in self.read_chunks():
            data += chunk
            if len(data) > max_bytes:
                raise CorpusError(f"{self.name} has more than {max_bytes:,} bytes; {fix}")
        self._refuse_nul(data)
        return bytes(data)

    def read_lines(self) -> Iterator[tuple[int, str]]:
        """Yields every line, without its line end, and its number from 1."""
        for block in self.read_blocks():
            first = self.line_number(0)
            for index, line in enumerate(block.to_pylist()):
                yield first + index, line.rstrip("\r\n")

    def read_full_lines(self) -> Iterator[tuple[int, str]]:
        """Yields every line that is not blank, as `read_lines` does."""
        return ((number, line) for number, line in self.read_lines() if line.strip())

    def reopen(self) -> "LineReader":
        """Another reader of the same file from its start, for formats that read it twice; do not close it."""
        return LineReader(self.source, self._block_bytes, self._skip_bad)

    def open_binary(self) -> IO[bytes]:
        """The whole content, hashed, as a file with random access; for formats that are not text."""
        with self._translate_errors():
            file = self.source.open_binary()
            while data := file.read(self._block_bytes):
                self._content.add(data)
                self.bytes_read += len(data)
            file.seek(0)
            return file

    def open_companion(self, path: Location, role: str = "the file") -> "LineReader":
        """A reader of a file that belongs to this one. Raises CorpusError for a folder or a missing file."""
        source = SourceFile(path, role)
        if source.is_folder:
            raise CorpusError(f"{role} {path} is a folder; give a file")
        self.companions.append(LineReader(source, self._block_bytes, self._skip_bad))
        return self.companions[-1]

    def count_skipped(self, reason: str) -> None:
        """Counts an entry that the format leaves out on purpose."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def count_good(self, entries: int = 1) -> None:
        """Counts entries (lines, questions, sentences of several lines) that follow the format."""
        self._good_count += entries

    def report_bad(self, line: int, reason: str) -> None:
        """Counts an entry that breaks the format. Raises CorpusError unless bad entries are skipped."""
        if not self._skip_bad:
            fix = "--skip-bad leaves it out" if self._good_count else "other formats: memtune corpus formats"
            raise CorpusError(f"{self.name}: line {line}: {reason}; {fix}")
        self.count_skipped(BAD_ENTRIES)
        self._bad_count += 1
        self._last_bad = f"line {line}: {reason}"

    def check_bad_share(self) -> None:
        """Raises CorpusError if more than 1 % of the entries are bad; call it at the end of the file."""
        entries = self._good_count + self._bad_count
        if self._bad_count > _MAX_BAD_SHARE * entries:
            raise CorpusError(
                f"{self.name}: bad entries: {self._bad_count} of {entries}, more than {_MAX_BAD_SHARE:.0%}; "
                f"the last one: {self._last_bad}"
            )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CorpusError(f"cannot read {self.name}: {error.strerror or error}") from None

    def _cut_at_line_ends(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        rest = b""
        for chunk in chunks:
            data = rest + chunk
            cut = data.rfind(b"\n") + 1
            rest = data[cut:]
            if cut:
                yield data[:cut]
            if len(rest) > self._block_bytes:
                self._refuse_nul(rest)
                self._refuse_lone_carriage_return(rest)
                raise CorpusError(
                    f"{self._describe_position(b'', 0)}: a line of more than {self._block_bytes} bytes; "
                    "write one sentence or paragraph per line"
                )
        if rest:
            yield rest + b"\n"

    def _decode_lines(self, data: bytes) -> pa.Array:
        self._refuse_nul(data)
        self._refuse_lone_carriage_return(data)
        marked = self._block_start_byte == 0 and data.startswith(_BYTE_ORDER_MARK)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{self._describe_position(data, error.start)}: not UTF-8 (0x{data[error.start]:02x}, "
                f"{error.reason}); {CONVERSION_ADVICE}"
            ) from None
        return _view_lines(data, len(_BYTE_ORDER_MARK) if marked else 0)

    def _refuse_nul(self, data: bytes | bytearray) -> None:
        nul = data.find(b"\0")
        if nul >= 0:
            position = self._describe_position(data, nul)
            raise CorpusError(f"{position}: a NUL byte, so not text; {CONVERSION_ADVICE}")

    def _refuse_lone_carriage_return(self, data: bytes) -> None:
        """Refuses CR line ends of old Macs: as whitespace they would join a file into one sentence."""
        found = _LONE_CARRIAGE_RETURN.search(data)
        if found:
            raise CorpusError(
                f"{self._describe_position(data, found.start())}: a carriage return within a line; lines end "
                "with LF or CR LF, so convert the file first (tr '\\r' '\\n' < FILE > NEW)"
            )

    def _describe_position(self, data: bytes | bytearray, offset: int) -> str:
        line = self.line_number(data.count(b"\n", 0, offset))
        return f"{self.name}: byte {self._block_start_byte + offset}, line {line}"


def _view_lines(data: bytes, start: int) -> pa.Array:
    """A view of the bytes from `start` on as strings, one per line with its line feed."""
    line_feeds = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    offsets = np.empty(len(line_feeds) + 1, np.int32)
    offsets[0] = start
    np.add(line_feeds, 1, out=offsets[1:], casting="unsafe")
    return pa.StringArray.from_buffers(len(line_feeds), pa.py_buffer(offsets), pa.py_buffer(data))
