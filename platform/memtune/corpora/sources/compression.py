"""Compressed sources: recognised by their first bytes, decompressed while they are read.

Python 3.11 has no zstd, so pyarrow decompresses; xz, which pyarrow does not know, comes from Python.
"""

import lzma
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from memtune.errors import CorpusError

__all__ = ["find_codec", "read_decompressed"]

_CODECS = ((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
# "BZh" alone may start a text: the level and the mark of a block, or of the end, follow.
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")


def find_codec(start: bytes) -> str | None:
    """The compression of a file that starts with these bytes, or None."""
    if _BZIP2.match(start):
        return "bz2"
    return next((codec for signature, codec in _CODECS if start.startswith(signature)), None)


def read_decompressed(name: object, stream: Any, codec: str, chunk_bytes: int) -> Iterator[bytes]:
    """Yields the decompressed content of a binary stream in chunks of at most `chunk_bytes`.

    Raises CorpusError, which calls the source `name`, for data that are damaged or end too early.
    """
    done = 0
    try:
        with _open_stream(stream, codec) as text:
            while chunk := text.read(chunk_bytes):
                yield chunk
                done += len(chunk)
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
        raise CorpusError(
            f"{name}: the {codec} data are damaged or cut off after {done:,} decompressed bytes "
            f"({' '.join(str(error).splitlines()[:1])}); fetch or compress the file again"
        ) from None


def _open_stream(stream: Any, codec: str) -> Any:
    if codec == "xz":
        return lzma.LZMAFile(stream)
    native = stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r")
    return pa.CompressedInputStream(native, codec)
