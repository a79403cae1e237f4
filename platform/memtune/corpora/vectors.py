"""Pretrained word vectors for the vocabulary of a corpus.

They come as text in the form of GloVe (Pennington et al., 2014): a token and its numbers a line, separated by
blanks, no header. A token may hold blanks itself, as some of the 840B vectors' do: the numbers are the last
ones of the line. Of a large file only the rows of the vocabulary are kept; a word that the file has not as it
is written gets numbers drawn from N(0, 1).

Letters: V vocabulary, E width of a vector.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.sources import LineReader
from memtune.corpora.vocabulary import Vocabulary
from memtune.errors import CorpusError

__all__ = ["VectorFile", "Vectors", "read_vectors"]

_PROGRESS_LINES = 10_000


@dataclass(frozen=True)
class VectorFile:
    """A file of vectors, and the seed of what words outside of it get."""

    path: Path
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Vectors:
    """A vector a token, float32, and for which tokens the file had one."""

    values_VE: npt.NDArray[np.float32]
    known_V: npt.NDArray[np.bool_]

    @classmethod
    def load(cls, path: Path) -> "Vectors":
        """The vectors of a file written from `batch`, mapped, not copied."""
        with pa.memory_map(str(path)) as file:
            return cls.of_file(file)

    @classmethod
    def of_file(cls, file: Any) -> "Vectors":
        """The vectors in the content of such a file: the file, mapped, or a buffer."""
        batch = pa.ipc.open_file(file).get_batch(0)
        column = batch.column("vector")
        values = column.values.to_numpy().reshape(len(column), column.type.list_size)
        return cls(values, batch.column("known").to_numpy(zero_copy_only=False))

    @property
    def batch(self) -> pa.RecordBatch:
        """Columns "vector" and "known", a row an id."""
        width = self.values_VE.shape[1]
        column = pa.FixedSizeListArray.from_arrays(pa.array(self.values_VE.ravel()), width)
        return pa.RecordBatch.from_arrays([column, pa.array(self.known_V)], names=["vector", "known"])

    @property
    def digest(self) -> list[str]:
        """SHA-256 of the values and of which are known."""
        content = (np.ascontiguousarray(self.values_VE), np.ascontiguousarray(self.known_V))
        return [hashlib.sha256(array.data).hexdigest() for array in content]


def read_vectors(
    reader: LineReader, vocabulary: Vocabulary, seed: int, progress: Callable[[int], None]
) -> Vectors:
    """The vectors of the tokens; a CorpusError names the line that is no vector as wide as the first.

    `progress` is called with the bytes read now and then.
    """
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    values_VE = np.empty((0, 0), np.float32)
    known_V = np.zeros(len(vocabulary), np.bool_)
    for number, line in reader.lines():
        line = line.rstrip(" ")
        if number == 1:
            values_VE = _drawn(len(vocabulary), _width(reader, line), seed)
        blanks = line.count(" ")
        if blanks < values_VE.shape[1]:
            reader.bad(number, f"{blanks} numbers instead of {values_VE.shape[1]}")
            continue
        reader.good()
        token = (
            line[: line.index(" ")] if blanks == values_VE.shape[1] else _long_token(line, values_VE.shape[1])
        )
        row = ids.get(token)
        if row is not None and not known_V[row]:
            vector = _numbers(line, values_VE.shape[1])
            if vector is None:
                reader.bad(number, f'what follows "{token}" are not {values_VE.shape[1]} finite numbers')
                continue
            values_VE[row] = vector
            known_V[row] = True
        if number % _PROGRESS_LINES == 0:
            progress(reader.bytes_read)
    reader.check_bad()
    if not known_V.any():
        raise CorpusError(f"{reader.path} has no vector for any word of the corpus; is its case another one?")
    return Vectors(values_VE, known_V)


def _width(reader: LineReader, line: str) -> int:
    width = line.count(" ")
    if width < 2:
        raise CorpusError(
            f"{reader.path}: line 1: {width} numbers after the token; vectors are lines of a token and its "
            "numbers, without a header"
        )
    return width


def _drawn(size: int, width: int, seed: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((size, width), np.float32)


def _long_token(line: str, width: int) -> str:
    return line.rsplit(" ", width)[0]


def _numbers(line: str, width: int) -> npt.NDArray[np.float32] | None:
    try:
        numbers = np.array(line.rsplit(" ", width)[1:], np.float32)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None
