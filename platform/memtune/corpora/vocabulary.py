"""Vocabulary: the tokens of a corpus, their ids and how often the training text has them.

Ids: 0 is `<eos>`, the boundary that ends every sentence and stands before the first word; 1 is `<unk>`
where the vocabulary has one; the others go by descending training count, equal counts by token. In a
vocabulary made of all splits the counts are those of all.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.errors import CorpusError

__all__ = ["EOS", "UNK", "Vocabulary"]

EOS = "<eos>"
UNK = "<unk>"


class Vocabulary:
    """An immutable list of tokens with their training counts; a token's place is its id.

    It reads its columns where they are, in memory or in a mapped file, and makes Python strings of them
    when first asked for one.
    """

    def __init__(self, tokens: Sequence[str] | pa.Array, counts: Sequence[int] | pa.Array) -> None:
        self._tokens = pa.array(tokens, pa.string()) if isinstance(tokens, Sequence) else tokens
        self._counts = pa.array(counts, pa.int64()) if isinstance(counts, Sequence) else counts
        assert len(self._tokens) == len(self._counts)
        assert self._tokens[0].as_py() == EOS, "id 0 is the boundary"

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """The vocabulary of a file written from `batch`, mapped, not copied."""
        with pa.memory_map(str(path)) as file:
            return cls.of_file(file)

    @classmethod
    def of_file(cls, file: Any) -> "Vocabulary":
        """The vocabulary in the content of such a file: the file, mapped, or a buffer."""
        batch = pa.ipc.open_file(file).get_batch(0)
        return cls(batch.column("token"), batch.column("count"))

    @property
    def batch(self) -> pa.RecordBatch:
        """Columns "token" and "count", a row an id."""
        return pa.RecordBatch.from_arrays([self._tokens, self._counts], names=["token", "count"])

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of the tokens in their order, a line each."""
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(self)], self._tokens), "\n")
        return hashlib.sha256(lines.buffers()[2]).hexdigest()

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Every token, by id."""
        return tuple(self._tokens.to_pylist())

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Training counts by id; that of `<eos>` is the number of sentences."""
        return tuple(self._counts.to_pylist())

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: identifier for identifier, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.batch.equals(other.batch)

    def __hash__(self) -> int:
        return hash((self.tokens, self.counts))

    def id_of(self, token: str) -> int:
        """The id of a token; that of `<unk>` for an unknown one, a CorpusError if there is no `<unk>`."""
        found = self._ids.get(token, self._ids.get(UNK))
        if found is None:
            raise CorpusError(f'"{token}" is not among the {len(self)} tokens, and there is no {UNK} for it')
        return found

    def encode(self, words: Iterable[str]) -> npt.NDArray[np.int64]:
        """Ids of the words, (words,) int64; no `<eos>` is added."""
        return np.fromiter((self.id_of(word) for word in words), dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of the ids."""
        return [self.tokens[identifier] for identifier in ids]
