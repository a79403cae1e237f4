"""Shards: the tokens of a split as Arrow files that are mapped.

A shard is one uncompressed Arrow IPC file with one record batch of one column, "tokens": one list of ids per
sentence, `<eos>` last. Ids are uint16 while the vocabulary fits, else int32. No sentence spans two shards.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.store.arrow_files import map_file, read_batch, write_batch
from memtune.corpora.store.corpus_store import CorpusStore, describe_file
from memtune.corpora.store.manifest import ShardRecord
from memtune.errors import CorpusError
from memtune.storage.digests import ContentDigest

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


def map_shard(path: Path, vocabulary_size: int) -> ShardArrays:
    """Views of a shard's file, mapped. Raises CorpusError as `view_shard` does."""
    return view_shard(map_file(path), str(path), vocabulary_size)


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


class SplitDigest:
    """Digest of a split's tokens and sentence boundaries, independent of the division into shards."""

    def __init__(self) -> None:
        self._ids = ContentDigest()
        self._lengths = ContentDigest()

    def add(self, ids: Ids, lengths: npt.NDArray[np.int32]) -> None:
        """Append sentences: their ids, and the number of ids of each."""
        self._ids.add(ids.data)
        self._lengths.add(lengths.data)

    @property
    def hexdigests(self) -> tuple[str, str]:
        """SHA-256 of the ids, in the type they are stored in, and of the lengths, int32."""
        return self._ids.sha256, self._lengths.sha256


class ShardWriter:
    """Divides a stream of sentences into shards of at most `shard_tokens` tokens and writes them.

    A longer sentence has its own shard. All shards are filled in one buffer.
    """

    def __init__(
        self, store: CorpusStore, name: str, prefix: str, shard_tokens: int, dtype: np.dtype[Any]
    ) -> None:
        self.shards: list[ShardRecord] = []
        self.digest = SplitDigest()
        self._store = store
        self._name = name
        self._prefix = prefix
        self._shard_tokens = shard_tokens
        self._buffer = np.empty(shard_tokens, dtype)
        self._buffered_tokens = 0
        self._buffered_lengths: list[npt.NDArray[np.int32]] = []

    def add(self, ids: Ids, lengths: npt.NDArray[np.int32]) -> None:
        """Append sentences: their ids, `<eos>` included, and the number of ids of each."""
        self.digest.add(ids, lengths)
        ends = np.cumsum(lengths, dtype=np.int64)
        sentence = position = 0
        while sentence < len(lengths):
            room = self._shard_tokens - self._buffered_tokens
            stop = int(np.searchsorted(ends, position + room, side="right"))
            if stop == sentence and not self._buffered_tokens:
                stop += 1  # longer than a shard
            if stop > sentence:
                end = int(ends[stop - 1])
                self._append(ids[position:end], lengths[sentence:stop])
                sentence, position = stop, end
            if sentence < len(lengths):
                self.flush()

    def _append(self, ids: Ids, lengths: npt.NDArray[np.int32]) -> None:
        if len(ids) > len(self._buffer):
            self._buffer = np.empty(len(ids), self._buffer.dtype)
        self._buffer[self._buffered_tokens : self._buffered_tokens + len(ids)] = ids
        self._buffered_lengths.append(lengths)
        self._buffered_tokens += len(ids)

    def flush(self) -> None:
        """Write the buffered sentences as a shard."""
        if not self._buffered_tokens:
            return
        batch = _build_batch(self._buffer[: self._buffered_tokens], np.concatenate(self._buffered_lengths))
        path = f"{self._prefix}-{len(self.shards):05d}.arrow"
        with self._store.create_file(self._name, path) as sink:
            write_batch(sink, batch)
        self.shards.append(
            ShardRecord(
                **describe_file(path, sink).model_dump(),
                tokens=self._buffered_tokens,
                sentences=batch.num_rows,
            )
        )
        self._buffered_tokens = 0
        self._buffered_lengths = []


def _build_batch(ids: Ids, lengths: npt.NDArray[np.int32]) -> pa.RecordBatch:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
    return pa.RecordBatch.from_arrays([column], names=["tokens"])
