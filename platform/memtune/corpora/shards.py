"""Shards: the tokens of a split as Arrow files that are mapped, not read.

A shard is one Arrow IPC file, uncompressed, with one record batch of one column, "tokens": a list of ids a
sentence, `<eos>` last. Ids are uint16 while the vocabulary fits, else int32. Sentences are never cut.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.location import HashingSink, Store
from memtune.corpora.manifest import Shard

__all__ = [
    "Ids",
    "ShardArrays",
    "ShardWriter",
    "SplitDigest",
    "map_shard",
    "shard_arrays",
    "token_type",
    "write_batch",
]

Ids = npt.NDArray[np.integer[Any]]
"""Ids as shards hold them: uint16 or int32."""


def token_type(vocabulary_size: int) -> np.dtype[Any]:
    """The type of ids in shards."""
    return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.int32)


def write_batch(sink: HashingSink, batch: pa.RecordBatch) -> None:
    """One record batch as an Arrow IPC file."""
    with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), batch.schema) as writer:
        writer.write_batch(batch)


@dataclass(frozen=True)
class ShardArrays:
    """The ids of a shard, sentence after sentence, and where each starts and the last one ends."""

    ids: Ids
    offsets: npt.NDArray[np.int32]


def map_shard(path: Path) -> ShardArrays:
    """Views of a shard's file, mapped; nothing is read before it is looked at."""
    with pa.memory_map(str(path)) as file:
        return shard_arrays(file)


def shard_arrays(file: Any) -> ShardArrays:
    """Views of a shard's content: a file, mapped, or a buffer."""
    column = pa.ipc.open_file(file).get_batch(0).column("tokens")
    return ShardArrays(column.values.to_numpy(), column.offsets.to_numpy())


class SplitDigest:
    """Digest of a split's content, tokens and sentence boundaries, however they are cut into shards."""

    def __init__(self) -> None:
        self._ids = hashlib.sha256()
        self._lengths = hashlib.sha256()

    def add(self, ids: Ids, lengths: npt.NDArray[np.int32]) -> None:
        """Takes in the sentences that follow: their ids, and the number of ids of each."""
        self._ids.update(ids.data)
        self._lengths.update(lengths.data)

    @property
    def hexadecimal(self) -> tuple[str, str]:
        """SHA-256 of the ids, in the type they are stored in, and of the lengths, int32."""
        return self._ids.hexdigest(), self._lengths.hexdigest()


class ShardWriter:
    """Cuts a stream of sentences into shards of at most `shard_tokens` tokens and writes them.

    A longer sentence gets a shard of its own. The shard in hand is filled in place, in one buffer for all.
    """

    def __init__(self, store: Store, name: str, prefix: str, shard_tokens: int, dtype: np.dtype[Any]) -> None:
        self.shards: list[Shard] = []
        self.digest = SplitDigest()
        self._store = store
        self._name = name
        self._prefix = prefix
        self._shard_tokens = shard_tokens
        self._buffer = np.empty(shard_tokens, dtype)
        self._tokens = 0
        self._lengths: list[npt.NDArray[np.int32]] = []

    def add(self, ids: Ids, lengths: npt.NDArray[np.int32]) -> None:
        """Appends sentences: their ids, `<eos>` included, and the number of ids of each."""
        self.digest.add(ids, lengths)
        ends = np.cumsum(lengths, dtype=np.int64)
        sentence = position = 0
        while sentence < len(lengths):
            room = self._shard_tokens - self._tokens
            stop = int(np.searchsorted(ends, position + room, side="right"))
            if stop == sentence and not self._tokens:
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
        self._buffer[self._tokens : self._tokens + len(ids)] = ids
        self._lengths.append(lengths)
        self._tokens += len(ids)

    def flush(self) -> None:
        """Writes the sentences in hand as a shard."""
        if not self._tokens:
            return
        batch = _batch(self._buffer[: self._tokens], np.concatenate(self._lengths))
        path = f"{self._prefix}-{len(self.shards):05d}.arrow"
        with self._store.new_file(self._name, path) as sink:
            write_batch(sink, batch)
        self.shards.append(
            Shard(**sink.record(path).model_dump(), tokens=self._tokens, sentences=batch.num_rows)
        )
        self._tokens = 0
        self._lengths = []


def _batch(ids: Ids, lengths: npt.NDArray[np.int32]) -> pa.RecordBatch:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    column = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
    return pa.RecordBatch.from_arrays([column], names=["tokens"])
