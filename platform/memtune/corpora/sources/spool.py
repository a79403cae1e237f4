"""Temporary files of an import; the operating system deletes them even if the process is killed."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from memtune.errors import StorageError


@contextmanager
def translate_spool_errors() -> Iterator[None]:
    """Raises StorageError if a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write to {tempfile.gettempdir()}: {error}; set TMPDIR to a folder with enough space"
        ) from None


def create_temporary_file() -> IO[bytes]:
    """Creates a file without a name, which the system deletes at the end of the process."""
    return tempfile.TemporaryFile()
