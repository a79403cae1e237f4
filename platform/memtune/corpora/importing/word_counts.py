"""Count words in one pass over the text and store every word as a number in a temporary file.

Arrow dictionary-encodes each block: a code per token, which indexes the block's dictionary of distinct words.
The codes go to a temporary file immediately. The dictionaries are much smaller than the text and are merged
into one WordTable in groups, so memory grows with the number of distinct words and not with the text.
Temporary files have no name, so the operating system deletes them even if the process is killed.

A code maps through the block's word numbers to a word number, which counts words in order of first appearance
in the whole text.
"""

from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.blocks.text_blocks import SENTENCE_END, Block
from memtune.storage.local_files import create_temporary_file, translate_spool_errors

_MERGE_THRESHOLD_BYTES = 8 * 2**20


class WordTable:
    """All distinct words in order of first appearance; word number 0 is SENTENCE_END."""

    def __init__(self) -> None:
        self.words: pa.Array = pa.array([SENTENCE_END], pa.string())

    def __len__(self) -> int:
        return len(self.words)

    def merge(self, dictionaries: list[pa.Array]) -> list[npt.NDArray[np.int32]]:
        """Adds the words and returns the word numbers of each dictionary."""
        words = pa.concat_arrays(dictionaries)
        # Looking up the known words and encoding only the others takes a third of the memory of encoding all.
        known_numbers = pc.index_in(words, value_set=self.words)
        new = words.filter(known_numbers.is_null()).dictionary_encode()
        numbers = known_numbers.fill_null(-1).to_numpy().copy()
        numbers[numbers < 0] = new.indices.to_numpy() + len(self.words)
        self.words = pa.concat_arrays([self.words, new.dictionary])
        # Arrow's pool keeps the memory that the merge has freed; this call returns it to the system.
        pa.default_memory_pool().release_unused()
        return np.split(numbers, np.cumsum([len(words) for words in dictionaries])[:-1])


class SplitCounter:
    """The words of one split as word numbers in temporary files, and the count of each word.

    `full_sentence_count` are the sentences with words. `text_words` and `text_bytes` add up those of blocks.
    """

    def __init__(self, table: WordTable) -> None:
        self.token_count = 0
        self.sentence_count = 0
        self.full_sentence_count = 0
        self.longest_sentence_tokens = 0
        self.text_words = 0
        self.text_bytes = 0
        self._table = table
        self._counts = np.zeros(1, np.int64)
        with translate_spool_errors():
            self._codes = create_temporary_file()  # by block: codes of the tokens, lengths of the sentences
            self._word_numbers = create_temporary_file()
        self._block_sizes: list[tuple[int, int, int]] = []  # tokens, sentences, distinct words of each block
        self._pending: list[tuple[pa.Array, npt.NDArray[np.int64]]] = []

    @property
    def word_count(self) -> int:
        """Number of tokens without sentence ends."""
        return self.token_count - self.sentence_count

    def add(self, block: Block) -> None:
        """Counts a block's words and appends them to the temporary files."""
        if not len(block.lengths):
            return
        encoded = block.words.dictionary_encode()
        codes = encoded.indices.to_numpy()
        with translate_spool_errors():
            codes.tofile(self._codes)
            block.lengths.tofile(self._codes)
        self._block_sizes.append((len(codes), len(block.lengths), len(encoded.dictionary)))
        self._pending.append((encoded.dictionary, np.bincount(codes, minlength=len(encoded.dictionary))))
        self.token_count += len(codes)
        self.sentence_count += len(block.lengths)
        self.full_sentence_count += int(np.count_nonzero(block.lengths > 1))
        self.text_words += block.text_words or 0
        self.text_bytes += block.text_bytes or 0
        self.longest_sentence_tokens = max(self.longest_sentence_tokens, int(block.lengths.max()))
        if sum(words.nbytes for words, _ in self._pending) > _MERGE_THRESHOLD_BYTES:
            self.merge()

    def merge(self) -> None:
        """Assigns word numbers to the blocks added since the last merge."""
        if not self._pending:
            return
        maps = self._table.merge([words for words, _ in self._pending])
        self._counts = _pad_counts(self._counts, len(self._table))
        for numbers, (_, counts) in zip(maps, self._pending, strict=True):
            with translate_spool_errors():
                numbers.tofile(self._word_numbers)
            self._counts[numbers] += counts
        self._pending.clear()

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Count in this split of every word of the table, (words,) int64; call `merge` before."""
        assert not self._pending
        return _pad_counts(self._counts, len(self._table))

    def read_blocks(
        self,
    ) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        """Yields for each block its token codes, the word number of each code, and its sentence lengths."""
        assert not self._pending
        self._codes.seek(0)
        self._word_numbers.seek(0)
        for tokens, sentences, distinct in self._block_sizes:
            codes = _read_int32(self._codes, tokens)
            lengths = _read_int32(self._codes, sentences)
            yield codes, _read_int32(self._word_numbers, distinct), lengths

    def close(self) -> None:
        """Closes the temporary files, which deletes them."""
        self._codes.close()
        self._word_numbers.close()


def _pad_counts(counts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    return np.pad(counts, (0, size - len(counts)))


def _read_int32(file: IO[bytes], count: int) -> npt.NDArray[np.int32]:
    return np.fromfile(file, np.int32, count)
