"""Counting words: one pass over the text leaves every word as a number in a file, with counts beside.

Arrow encodes the words of each block as codes into the block's own dictionary, at C speed and whatever the
text. The codes go to a temporary file at once. The dictionaries, a fraction of the text, are merged into the
table of all words a group at a time, so that memory follows the number of different words, not the text.
Temporary files have no name: the system frees them even when the process is killed.

Letters: a block's code -> (the block's map) -> word number, by first appearance in the whole text.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.sources import END, Block
from memtune.errors import StorageError

__all__ = ["SplitCounter", "WordTable", "spooling", "temporary_file"]

_GROUP_BYTES = 8 * 2**20


class WordTable:
    """All different words seen, in order of first appearance; number 0 is END."""

    def __init__(self) -> None:
        self.words: pa.Array = pa.array([END], pa.string())

    def __len__(self) -> int:
        return len(self.words)

    def merge(self, dictionaries: list[pa.Array]) -> list[npt.NDArray[np.int32]]:
        """Adds the words and returns, for each dictionary, the number of each of its words."""
        words = pa.concat_arrays(dictionaries)
        # Looking the known words up and encoding only the others takes a third of the memory of encoding all.
        numbers = pc.index_in(words, value_set=self.words)
        fresh = words.filter(numbers.is_null()).dictionary_encode()
        found = numbers.fill_null(-1).to_numpy().copy()
        found[found < 0] = fresh.indices.to_numpy() + len(self.words)
        self.words = pa.concat_arrays([self.words, fresh.dictionary])
        pa.default_memory_pool().release_unused()
        return np.split(found, np.cumsum([len(words) for words in dictionaries])[:-1])


class SplitCounter:
    """The words of one split as numbers, in temporary files, and how often each occurs."""

    def __init__(self, table: WordTable) -> None:
        self.tokens = 0
        self.sentences = 0
        self.longest = 0
        self._table = table
        self._counts = np.zeros(1, np.int64)
        with spooling():
            self._codes = temporary_file()  # by block: codes of the tokens, lengths of the sentences
            self._maps = temporary_file()
        self._shapes: list[tuple[int, int, int]] = []  # tokens, sentences, distinct words of each block
        self._pending: list[tuple[pa.Array, npt.NDArray[np.int64]]] = []

    @property
    def words(self) -> int:
        """Tokens without the ends of sentences."""
        return self.tokens - self.sentences

    def add(self, block: Block) -> None:
        """Counts a block's words and puts them away."""
        if not len(block.lengths):
            return
        encoded = block.words.dictionary_encode()
        codes = encoded.indices.to_numpy()
        with spooling():
            codes.tofile(self._codes)
            block.lengths.tofile(self._codes)
        self._shapes.append((len(codes), len(block.lengths), len(encoded.dictionary)))
        self._pending.append((encoded.dictionary, np.bincount(codes, minlength=len(encoded.dictionary))))
        self.tokens += len(codes)
        self.sentences += len(block.lengths)
        self.longest = max(self.longest, int(block.lengths.max()))
        if sum(words.nbytes for words, _ in self._pending) > _GROUP_BYTES:
            self.merge()

    def merge(self) -> None:
        """Gives the words of the blocks added since the last time their numbers."""
        if not self._pending:
            return
        maps = self._table.merge([words for words, _ in self._pending])
        self._counts = _padded(self._counts, len(self._table))
        for numbers, (_, counts) in zip(maps, self._pending, strict=True):
            with spooling():
                numbers.tofile(self._maps)
            self._counts[numbers] += counts
        self._pending.clear()

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Occurrences in this split by word number, over the whole table."""
        assert not self._pending
        return _padded(self._counts, len(self._table))

    def blocks(self) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        """Of each block: codes of its tokens, word number of each code, lengths of its sentences."""
        assert not self._pending
        self._codes.seek(0)
        self._maps.seek(0)
        for tokens, sentences, distinct in self._shapes:
            codes = _read(self._codes, tokens)
            lengths = _read(self._codes, sentences)
            yield codes, _read(self._maps, distinct), lengths

    def close(self) -> None:
        """Frees the temporary files."""
        self._codes.close()
        self._maps.close()


@contextmanager
def spooling() -> Iterator[None]:
    """A StorageError where a temporary file cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write to {tempfile.gettempdir()}: {error}; set TMPDIR to a folder with room"
        ) from None


def temporary_file() -> IO[bytes]:
    """A file without a name, gone with its process."""
    return tempfile.TemporaryFile()


def _padded(counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    return np.pad(counts, (0, size - len(counts)))


def _read(file: IO[bytes], count: int) -> npt.NDArray[np.int32]:
    return np.fromfile(file, np.int32, count)
