"""Recognise binary files by their first bytes, and name the command that converts each kind to text.

Python 3.11 has no zstd, so pyarrow decompresses; xz, which pyarrow does not know, comes from Python.
"""

import lzma
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from memtune.errors import CorpusError

_CODECS = ((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
# "BZh" alone may start a text: the level and the mark of a block, or of the end, follow.
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")

_MAX_EXPANSION = 200
"""Text compresses by 3 to 10; a repetitive one by up to 100."""
_FREE_BYTES = 2**28
"""A smaller text may expand by any factor."""


def find_codec(start: bytes) -> str | None:
    """The compression of a file that starts with these bytes, or None."""
    if _BZIP2.match(start):
        return "bz2"
    return next((codec for signature, codec in _CODECS if start.startswith(signature)), None)


def read_decompressed(name: object, stream: Any, codec: str, chunk_bytes: int) -> Iterator[bytes]:
    """Yields the decompressed content of a binary stream in chunks of at most `chunk_bytes`.

    Raises CorpusError, which calls the source `name`, for data that are damaged, end too early or expand
    without measure.
    """
    done = 0
    try:
        with _open_stream(stream, codec) as text:
            while chunk := text.read(chunk_bytes):
                done += len(chunk)
                check_expansion(name, done, stream.tell())
                yield chunk
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise CorpusError(
            f"{name}: the {codec} data are damaged or cut off after {done:,} decompressed bytes "
            f"({' '.join(str(error).splitlines()[:1])}); fetch or compress the file again"
        ) from None


def check_expansion(name: object, text_bytes: int, stored_bytes: int) -> None:
    """Raises CorpusError for a text with far more bytes than what it was read from: it may have no end."""
    if text_bytes > max(_FREE_BYTES, _MAX_EXPANSION * stored_bytes):
        raise CorpusError(
            f"{name}: {stored_bytes:,} bytes expand to more than {text_bytes:,} bytes of text; the limit is "
            f"{_MAX_EXPANSION} times as many; if the text is right, import it uncompressed, as plain text"
        )


def _open_stream(stream: Any, codec: str) -> Any:
    if codec == "xz":
        return lzma.LZMAFile(stream)
    native = stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r")
    return pa.CompressedInputStream(native, codec)


SIGNATURE_BYTES = 512
"""Bytes from the start of a file that hold every signature; that of tar is at byte 257."""

_TAR_OFFSET = 257
_WRITE_TEXT = "write its text to a UTF-8 file first"
_ZIP_ADVICE = (
    'unpack it first ("unzip"); a .docx, .xlsx, .epub or .npz file is a zip archive too: export its text'
)

# Files that users may take for text; others have a NUL or are not UTF-8. Longer signatures come before their
# prefixes: UTF-32 starts like UTF-16.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"\x04\x22\x4d\x18", "an lz4 file", 'decompress it first ("unlz4")'),
    (b"PK\x03\x04", "a zip archive", _ZIP_ADVICE),
    (b"PK\x05\x06", "an empty zip archive", _ZIP_ADVICE),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", 'unpack it first ("7z x")'),
    (b"Rar!\x1a\x07", "a RAR archive", 'unpack it first ("unrar x")'),
    (b"PAR1", "a Parquet file", "import it with --format parquet"),
    (b"ARROW1", "an Arrow file", "import it with --format arrow"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "import it with --format arrow"),
    (b"%PDF-", "a PDF document", 'extract its text first ("pdftotext")'),
    (b"{\\rtf", "an RTF document", _WRITE_TEXT),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Microsoft Office document", _WRITE_TEXT),
    (b"\xff\xfe\0\0", "UTF-32 text", 'convert it first ("iconv -f UTF-32 -t UTF-8")'),
    (b"\0\0\xfe\xff", "UTF-32 text", 'convert it first ("iconv -f UTF-32 -t UTF-8")'),
    (b"\xff\xfe", "UTF-16 text", 'convert it first ("iconv -f UTF-16 -t UTF-8")'),
    (b"\xfe\xff", "UTF-16 text", 'convert it first ("iconv -f UTF-16 -t UTF-8")'),
)


def refuse_binary_signature(name: object, start: bytes) -> None:
    """Raises CorpusError, with the fix, if the first SIGNATURE_BYTES of a file are of a binary format."""
    if codec := find_codec(start):
        raise CorpusError(f"{name} is {codec} data, not UTF-8 text; compressed twice: decompress it once")
    if start[_TAR_OFFSET:].startswith(b"ustar"):
        raise CorpusError(f'{name} is a tar archive, not UTF-8 text; unpack it first ("tar -xf")')
    for signature, kind, advice in _SIGNATURES:
        if start.startswith(signature):
            raise CorpusError(f"{name} is {kind}, not UTF-8 text; {advice}")
