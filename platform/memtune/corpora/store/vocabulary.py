"""Vocabulary: the tokens of a corpus, their ids, their counts in the training text, and their vectors.

Id 0 is `<eos>`, the boundary that ends every sentence and precedes the first word. Id 1 is `<unk>` if the
vocabulary has it. The other ids follow descending training count; ties are ordered by token. If all splits
determine the vocabulary, the counts include all splits.

Pretrained vectors are read from text in the format of GloVe (Pennington et al., 2014): each line has a token
and its numbers, separated by spaces, and there is no header. A token may contain spaces, as some tokens of
the 840B vectors do; the numbers are the last fields of the line. Only the rows of the vocabulary are kept in
memory. The look-up is case-sensitive, and a word that is not in the file gets numbers drawn from N(0, 1).

Shapes: V vocabulary, E width of a vector.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.store.arrow_files import read_batch
from memtune.errors import CorpusError
from memtune.number_format import format_count
from memtune.storage.digests import hash_bytes

SCHEMA = pa.schema({"token": pa.string(), "count": pa.int64()})
EOS = "<eos>"
UNK = "<unk>"


class Vocabulary:
    """An immutable list of tokens with their training counts; the index of a token is its id.

    The columns stay in memory or in the mapped file. Python strings are created on first use.
    """

    def __init__(self, tokens: Sequence[str] | pa.Array, counts: Sequence[int] | pa.Array) -> None:
        self._tokens = pa.array(tokens, pa.string()) if isinstance(tokens, Sequence) else tokens
        self._counts = pa.array(counts, pa.int64()) if isinstance(counts, Sequence) else counts
        assert len(self._tokens) == len(self._counts)
        assert self._tokens[0].as_py() == EOS, "id 0 is the boundary"

    @classmethod
    def from_buffer(cls, content: pa.Buffer, name: str) -> "Vocabulary":
        """The vocabulary in a file that was written from `batch`, without a copy. Raises CorpusError."""
        batch = read_batch(content, SCHEMA, name)
        if not len(batch) or batch.column("token")[0].as_py() != EOS:
            raise CorpusError(f"{name} is not a vocabulary: token 0 is not {EOS}; import the corpus again")
        return cls(batch.column("token"), batch.column("count"))

    @property
    def batch(self) -> pa.RecordBatch:
        """Columns "token" and "count", one row per id."""
        return pa.RecordBatch.from_arrays([self._tokens, self._counts], names=["token", "count"])

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the tokens in id order, one per line."""
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(self)], self._tokens), "\n")
        return hash_bytes(lines.buffers()[2])

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Tokens by id."""
        return tuple(self._tokens.to_pylist())

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Training counts by id; the count of `<eos>` is the number of sentences."""
        return tuple(self._counts.to_pylist())

    @cached_property
    def ids(self) -> dict[str, int]:
        """Ids by token."""
        return {token: identifier for identifier, token in enumerate(self.tokens)}

    @property
    def unknown_id(self) -> int | None:
        """The id of `<unk>`, where the vocabulary has one."""
        return self.ids.get(UNK)

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, token: object) -> bool:
        return token in self.ids

    def get_id(self, token: str) -> int:
        """The id of a token, or that of `<unk>` for an unknown one. Raises CorpusError without `<unk>`."""
        identifier = self.ids.get(token, self.unknown_id)
        if identifier is None:
            raise CorpusError(
                f'"{token}" is not among the {format_count(len(self), "token")} of the vocabulary, which has '
                f'no {UNK}; import the corpus with --unknown map (in Python, unknown="map")'
            )
        return identifier

    def encode(self, words: Iterable[str]) -> npt.NDArray[np.int64]:
        """Ids of the words, (words,) int64; no `<eos>` is added."""
        return np.fromiter((self.get_id(word) for word in words), dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of the ids."""
        return [self.tokens[identifier] for identifier in ids]


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
    def from_buffer(cls, content: pa.Buffer, name: str, width: int) -> "Vectors":
        """The vectors in a file that was written from `batch`, without a copy. Raises CorpusError."""
        schema = pa.schema({"vector": pa.list_(pa.float32(), width), "known": pa.bool_()})
        batch = read_batch(content, schema, name)
        column = batch.column("vector")
        values = column.flatten().to_numpy().reshape(len(column), width)  # its rows alone
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
    width, values_VE = 0, np.empty((0, 0), np.float32)
    known_V = np.zeros(len(vocabulary), np.bool_)
    for number, line in reader.read_lines():
        line = line.rstrip(" ")
        if number == 1:
            width = line.count(" ")
            if width < 2:
                raise CorpusError(
                    f"{reader.name}: line 1: {format_count(width, 'number')} after the token; every line "
                    "must have a token and its numbers, and there must be no header"
                )
            values_VE = np.random.default_rng(seed).standard_normal((len(vocabulary), width), np.float32)
        spaces = line.count(" ")
        if spaces < width:
            reader.report_bad(number, f"{format_count(spaces, 'number')} instead of {width}")
            continue
        reader.count_good()
        token = line[: line.index(" ")] if spaces == width else line.rsplit(" ", width)[0]
        row = vocabulary.ids.get(token)
        if row is not None and not known_V[row]:
            vector = _parse_numbers(line, width)
            if vector is None:
                reader.report_bad(number, f'"{token}" is not followed by {width} finite numbers')
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


def _parse_numbers(line: str, width: int) -> npt.NDArray[np.float32] | None:
    try:
        numbers = np.array(line.rsplit(" ", width)[1:], np.float32)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None
