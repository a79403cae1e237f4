"""SHA-256 of files, streams and growing content; the package computes every file digest here."""

import hashlib
from pathlib import Path
from typing import Any


class ContentDigest:
    """SHA-256 and size of content that arrives in pieces."""

    def __init__(self) -> None:
        self.bytes = 0
        self._hash = hashlib.sha256()

    def add(self, data: Any) -> None:
        """Append the bytes of a buffer: bytes, an array or an Arrow buffer."""
        self._hash.update(data)
        self.bytes += memoryview(data).nbytes

    @property
    def sha256(self) -> str:
        """Hexadecimal SHA-256 of all content so far."""
        return self._hash.hexdigest()


class HashingSink:
    """A writable binary file that computes the digest of its content."""

    def __init__(self, sink: Any) -> None:
        self.closed = False
        self.content = ContentDigest()
        self._sink = sink

    def write(self, data: Any) -> int:
        """Write the data and add it to the digest; returns the number of bytes."""
        self._sink.write(data)
        self.content.add(data)
        return memoryview(data).nbytes

    def flush(self) -> None:
        """Flush the underlying file."""
        self._sink.flush()


def hash_bytes(data: Any) -> str:
    """Hexadecimal SHA-256 of a buffer."""
    return hashlib.sha256(data).hexdigest()


def hash_stream(stream: Any) -> str:
    """Hexadecimal SHA-256 of the rest of a binary stream."""
    return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_file(path: Path) -> str:
    """Hexadecimal SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hash_stream(file)
