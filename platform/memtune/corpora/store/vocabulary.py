"""Vocabulary: the tokens of a corpus, their ids and their counts in the training text.

Id 0 is `<eos>`, the boundary that ends every sentence and precedes the first word. Id 1 is `<unk>` if the
vocabulary has it. The other ids follow descending training count; ties are ordered by token. If all splits
determine the vocabulary, the counts include all splits.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.store.arrow_files import map_file, read_batch
from memtune.errors import CorpusError
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
    def load(cls, path: Path) -> "Vocabulary":
        """Memory-maps the vocabulary of a file that was written from `batch`. Raises CorpusError."""
        return cls.from_buffer(map_file(path), str(path))

    @classmethod
    def from_buffer(cls, content: pa.Buffer, name: str) -> "Vocabulary":
        """The vocabulary in the content of such a file. Raises CorpusError that names it `name`."""
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

    def get_id(self, token: str) -> int:
        """The id of a token, or that of `<unk>` for an unknown one. Raises CorpusError without `<unk>`."""
        identifier = self._ids.get(token, self._ids.get(UNK))
        if identifier is None:
            raise CorpusError(
                f'"{token}" is not among the {len(self)} tokens of the vocabulary, which has no {UNK}; '
                'import the corpus with unknown = "map"'
            )
        return identifier

    def encode(self, words: Iterable[str]) -> npt.NDArray[np.int64]:
        """Ids of the words, (words,) int64; no `<eos>` is added."""
        return np.fromiter((self.get_id(word) for word in words), dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of the ids."""
        return [self.tokens[identifier] for identifier in ids]
