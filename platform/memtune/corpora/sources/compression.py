"""Recognise compressed files by their first bytes, and decompress them.

Python 3.11 has no zstd, so pyarrow decompresses; xz, which pyarrow does not know, comes from Python.
"""

import lzma
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from memtune.errors import CorpusError

SIGNATURE_BYTES = 10
"""Bytes from the start of a file that tell its compression."""
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
