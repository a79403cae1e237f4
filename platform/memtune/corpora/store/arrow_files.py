"""Arrow IPC files of a corpus: validated before anything is read, mapped and not copied; and its shards.

The lengths and offsets in a file come from an untrusted writer, and Arrow does not check them. A file is
accepted when it has the expected schema, its buffers are not compressed, and all offsets are within them.

A shard has tokens of a split: an uncompressed file with one record batch of one column, "tokens": one list of
ids per sentence, `<eos>` last. Ids are uint16 while the vocabulary fits, else int32. No sentence spans two
shards.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.store.corpus_store import write_batches
from memtune.corpora.store.manifest import ShardRecord
from memtune.errors import CorpusError
from memtune.storage.digests import ContentDigest
from memtune.storage.folder import Folder

MAGIC = b"ARROW1"
FOOTER_BATCHES, MESSAGE_HEADER, BATCH_COMPRESSION = 3, 2, 3
"""Field numbers of the tables Footer, Message and RecordBatch (Arrow's File.fbs and Message.fbs)."""
BLOCK_BYTES = 24
"""Size of a Block of the footer: int64 offset, int32 metadata length with padding, int64 body length."""
MESSAGE_PREFIX_BYTES = 8
"""Continuation marker and length in front of a message."""


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
            for column in batch.columns:
                nested = column.values.null_count if hasattr(column, "values") else 0
                if column.null_count or nested:
                    raise CorpusError(f"{name} has missing values; import the corpus again")
        return batches


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


Ids = npt.NDArray[np.integer[Any]]
"""Ids as stored in shards: uint16 or int32."""


def choose_id_type(vocabulary_size: int) -> np.dtype[Any]:
    """The type of ids in shards."""
    return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.int32)


@dataclass(frozen=True)
class ShardArrays:
    """The ids of a shard in order, the start of each sentence, and the end of the last one."""

    ids: Ids
    offsets: npt.NDArray[np.int32]


def view_shard(content: pa.Buffer, name: str, vocabulary_size: int) -> ShardArrays:
    """Views of a shard's content.

    Raises CorpusError, which calls the file `name`, for ids of another type than the vocabulary's, offsets
    beyond the ids, and sentences without a token.
    """
    ids = pa.from_numpy_dtype(choose_id_type(vocabulary_size))
    column = read_batch(content, pa.schema({"tokens": pa.list_(ids)}), name).column("tokens")
    arrays = ShardArrays(column.values.to_numpy(), column.offsets.to_numpy())
    lengths = np.diff(arrays.offsets)
    if not len(lengths) or lengths.min() < 1 or arrays.offsets[0] or arrays.offsets[-1] != len(arrays.ids):
        raise CorpusError(
            f"{name} has sentences without tokens or tokens without a sentence; import it again"
        )
    return arrays


class ColumnDigests:
    """Digest of each column of a table, or of a split: its ids, in the type they are stored in, and the
    int32 length of each sentence, however they are divided into shards.
    """

    def __init__(self, columns: int) -> None:
        self._columns = [ContentDigest() for _ in range(columns)]

    def add(self, *pieces: Any) -> None:
        """Append the bytes of a piece of each column."""
        for content, piece in zip(self._columns, pieces, strict=True):
            content.add(piece)

    @property
    def hexdigests(self) -> list[str]:
        """Hexadecimal SHA-256 of each column."""
        return [content.sha256 for content in self._columns]


class ShardWriter:
    """Writes a stream of sentences as shards of at most `shard_tokens` tokens, or of one longer sentence."""

    def __init__(self, corpus: Folder, prefix: str, shard_tokens: int) -> None:
        self.shards: list[ShardRecord] = []
        self.digest = ColumnDigests(2)
        self._corpus = corpus
        self._prefix = prefix
        self._shard_tokens = shard_tokens
        self._ids: Ids = np.empty(0, np.uint8)  # which takes the type of the ids that it is joined with
        self._lengths: npt.NDArray[np.int32] = np.empty(0, np.int32)

    def add(self, ids: Ids, lengths: npt.NDArray[np.int32]) -> None:
        """Append sentences: their ids, `<eos>` included, and the number of ids of each."""
        self.digest.add(ids.data, lengths.data)
        self._ids = np.concatenate([self._ids, ids])
        self._lengths = np.concatenate([self._lengths, lengths])
        while len(self._ids) > self._shard_tokens:
            fitting = np.searchsorted(np.cumsum(self._lengths), self._shard_tokens, side="right")
            self._write(max(1, int(fitting)))

    def flush(self) -> None:
        """Write the buffered sentences as a shard."""
        if len(self._lengths):
            self._write(len(self._lengths))

    def _write(self, sentences: int) -> None:
        """Write the first of the buffered sentences as a shard."""
        offsets = np.concatenate([[0], self._lengths[:sentences]]).cumsum(dtype=np.int32)
        tokens = int(offsets[-1])
        column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(self._ids[:tokens]))
        batch = pa.RecordBatch.from_arrays([column], names=["tokens"])
        file = write_batches(self._corpus, f"{self._prefix}-{len(self.shards):05d}.arrow", [batch])
        self.shards.append(ShardRecord(**file, tokens=tokens, sentences=sentences))
        self._ids, self._lengths = self._ids[tokens:], self._lengths[sentences:]
