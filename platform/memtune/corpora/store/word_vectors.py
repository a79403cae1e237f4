"""Pretrained word vectors for the vocabulary of a corpus.

The input is text in the format of GloVe (Pennington et al., 2014): each line has a token and its numbers,
separated by spaces, and there is no header. A token may contain spaces, as some tokens of the 840B vectors
do; the numbers are the last fields of the line. Only the rows of the vocabulary are kept in memory. The
look-up is case-sensitive, and a word that is not in the file gets numbers drawn from N(0, 1).

Shapes: V vocabulary, E width of a vector.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.arrow_files import map_file, read_batch
from memtune.corpora.store.vocabulary import Vocabulary
from memtune.errors import CorpusError
from memtune.storage.digests import hash_bytes

_PROGRESS_LINES = 10_000


@dataclass(frozen=True)
class VectorFile:
    """A file of vectors, and the seed for the random vectors of words that are not in the file."""

    path: Path
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise CorpusError(f"the seed of word vectors must be at least 0, got {self.seed}")


@dataclass(frozen=True, eq=False)
class Vectors:
    """One vector per token of the vocabulary, and a mask of the tokens that the file contained."""

    values_VE: npt.NDArray[np.float32]
    known_V: npt.NDArray[np.bool_]

    @classmethod
    def load(cls, path: Path, width: int) -> "Vectors":
        """Memory-maps the vectors of a file that was written from `batch`. Raises CorpusError."""
        return cls.from_buffer(map_file(path), str(path), width)

    @classmethod
    def from_buffer(cls, content: pa.Buffer, name: str, width: int) -> "Vectors":
        """The vectors in the content of such a file. Raises CorpusError; its message names it as `name`."""
        schema = pa.schema({"vector": pa.list_(pa.float32(), width), "known": pa.bool_()})
        batch = read_batch(content, schema, name)
        column = batch.column("vector")
        values = column.values.to_numpy().reshape(len(column), width)
        return cls(values, batch.column("known").to_numpy(zero_copy_only=False))

    @property
    def batch(self) -> pa.RecordBatch:
        """Columns "vector" and "known", one row per id."""
        width = self.values_VE.shape[1]
        column = pa.FixedSizeListArray.from_arrays(pa.array(self.values_VE.ravel()), width)
        return pa.RecordBatch.from_arrays([column, pa.array(self.known_V)], names=["vector", "known"])

    @property
    def digest(self) -> list[str]:
        """Hexadecimal SHA-256 of the values and of the mask of known tokens."""
        content = (np.ascontiguousarray(self.values_VE), np.ascontiguousarray(self.known_V))
        return [hash_bytes(array.data) for array in content]


def read_vectors(
    reader: LineReader, vocabulary: Vocabulary, seed: int, progress: Callable[[int], None]
) -> Vectors:
    """Reads the vectors of the vocabulary's tokens.

    The first line sets the width. Raises CorpusError that names the line if a vector has another width.
    `progress` is called every 10,000 lines with the number of bytes read. If a token occurs twice, its first
    vector is used.
    """
    ids = {token: number for number, token in enumerate(vocabulary.tokens)}
    values_VE = np.empty((0, 0), np.float32)
    known_V = np.zeros(len(vocabulary), np.bool_)
    for number, line in reader.read_lines():
        line = line.rstrip(" ")
        if number == 1:
            values_VE = _draw_vectors(len(vocabulary), _read_width(reader, line), seed)
        spaces = line.count(" ")
        if spaces < values_VE.shape[1]:
            reader.report_bad(number, f"{spaces} numbers instead of {values_VE.shape[1]}")
            continue
        reader.count_good()
        token = (
            line[: line.index(" ")]
            if spaces == values_VE.shape[1]
            else _split_long_token(line, values_VE.shape[1])
        )
        row = ids.get(token)
        if row is not None and not known_V[row]:
            vector = _parse_numbers(line, values_VE.shape[1])
            if vector is None:
                reader.report_bad(number, f'"{token}" is not followed by {values_VE.shape[1]} finite numbers')
                continue
            values_VE[row] = vector
            known_V[row] = True
        if number % _PROGRESS_LINES == 0:
            progress(reader.bytes_read)
    reader.check_bad_share()
    if not known_V.any():
        raise CorpusError(
            f"{reader.name} has no vector for any word of the corpus; check that both use the same case"
        )
    return Vectors(values_VE, known_V)


def _read_width(reader: LineReader, line: str) -> int:
    width = line.count(" ")
    if width < 2:
        raise CorpusError(
            f"{reader.name}: line 1: {width} numbers after the token; every line must have a token and its "
            "numbers, and there must be no header"
        )
    return width


def _draw_vectors(size: int, width: int, seed: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((size, width), np.float32)


def _split_long_token(line: str, width: int) -> str:
    return line.rsplit(" ", width)[0]


def _parse_numbers(line: str, width: int) -> npt.NDArray[np.float32] | None:
    try:
        numbers = np.array(line.rsplit(" ", width)[1:], np.float32)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None
