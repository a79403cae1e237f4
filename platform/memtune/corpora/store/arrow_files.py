"""Arrow IPC files of a corpus: validated before anything is read, mapped and not copied.

The lengths and offsets in a file come from an untrusted writer, and Arrow does not check them. A file
is accepted when it has the expected schema, its buffers are not compressed, and all offsets are within them.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from memtune.errors import CorpusError
from memtune.storage.digests import HashingSink

MAGIC = b"ARROW1"
FOOTER_BATCHES, MESSAGE_HEADER, BATCH_COMPRESSION = 3, 2, 3
"""Field numbers of the tables Footer, Message and RecordBatch (Arrow's File.fbs and Message.fbs)."""
BLOCK_BYTES = 24
"""Size of a Block of the footer: int64 offset, int32 metadata length with padding, int64 body length."""
MESSAGE_PREFIX_BYTES = 8
"""Continuation marker and length in front of a message."""


def write_batch(sink: HashingSink, batch: pa.RecordBatch) -> None:
    """Write one record batch as an Arrow IPC file."""
    with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)


def map_file(path: Path) -> pa.Buffer:
    """The content of a file, mapped: pages are read when they are first used. Raises CorpusError."""
    with _translate_errors(str(path)), pa.memory_map(str(path)) as file:
        return file.read_buffer()


def read_batch(content: pa.Buffer, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """The only record batch of a file; raises as `read_table` does."""
    batches = _read_batches(content, schema, name)
    if len(batches) != 1:
        raise CorpusError(f"{name} has {len(batches)} record batches instead of one; import the corpus again")
    return batches[0]


def read_table(content: pa.Buffer, schema: pa.Schema, name: str) -> pa.Table:
    """All rows of a file, without a copy.

    Raises CorpusError for content that is not an Arrow file, has another schema, is compressed, has missing
    values, or has lengths or offsets beyond its buffers. `name` names the file in the error.
    """
    return pa.Table.from_batches(_read_batches(content, schema, name), schema)


def _read_batches(content: pa.Buffer, schema: pa.Schema, name: str) -> list[pa.RecordBatch]:
    with _translate_errors(name):
        reader = pa.ipc.open_file(pa.BufferReader(content))
        if not reader.schema.equals(schema):
            names = ", ".join(schema.names)
            raise CorpusError(f"{name} has other columns than {names}; import the corpus again")
        _refuse_compression(content, name)
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate(full=True)
            _refuse_missing_values(batch, name)
        return batches


def _refuse_missing_values(batch: pa.RecordBatch, name: str) -> None:
    for column in batch.columns:
        nested = column.values.null_count if hasattr(column, "values") else 0
        if column.null_count or nested:
            raise CorpusError(f"{name} has missing values; import the corpus again")


def _refuse_compression(content: pa.Buffer, name: str) -> None:
    """Raise CorpusError for a compressed batch: a small file could fill the memory."""
    data = memoryview(content)
    end = len(data) - len(MAGIC) - 4
    footer = end - _read("<i", data, end)
    batches = _find_field(data, footer + _read("<I", data, footer), FOOTER_BATCHES)
    if batches is None:
        return
    blocks = batches + _read("<I", data, batches)
    for index in range(_read("<I", data, blocks)):
        message = _read("<q", data, blocks + 4 + index * BLOCK_BYTES) + MESSAGE_PREFIX_BYTES
        header = _find_field(data, message + _read("<I", data, message), MESSAGE_HEADER)
        if header is None or _find_field(data, header + _read("<I", data, header), BATCH_COMPRESSION):
            raise CorpusError(f"{name} is compressed and cannot be mapped; import the corpus again")


def _find_field(data: memoryview, table: int, number: int) -> int | None:
    """Position of a field of a FlatBuffers table, or None when the table does not have it."""
    vtable = table - _read("<i", data, table)
    slot = 4 + 2 * number
    offset = _read("<H", data, vtable + slot) if slot < _read("<H", data, vtable) else 0
    return table + offset if offset else None


def _read(kind: str, data: memoryview, position: int) -> int:
    if position < 0:
        raise struct.error("a position before the start of the file")
    (value,) = struct.unpack_from(kind, data, position)
    return int(value)


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, struct.error) as error:
        reason: Any = str(error).splitlines()[:1]
        raise CorpusError(f"{name} is damaged ({' '.join(reason)}); import the corpus again") from None
