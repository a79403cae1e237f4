"""What an import keeps of a text in temporary files: its words as numbers with counts, and its annotations.

Arrow dictionary-encodes each block. The dictionary of each is merged into one WordTable, which numbers words
in order of first appearance in the whole text. The numbers go to a temporary file, so memory grows with the
number of distinct words and not with the text. Temporary files have no name, so the operating system deletes
them even if the process is killed.

Each block of annotations goes to temporary files as soon as it is read, too. They hold words as word numbers
of the WordTable, and relations as indices into a list of labels in order of first appearance. After the
vocabulary is selected, ids replace word numbers and the tables are written to the store one batch at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.store.annotations import ANNOTATION_KINDS, encode_column
from memtune.corpora.store.arrow_files import ColumnDigests
from memtune.corpora.store.corpus_store import write_batches
from memtune.corpora.store.manifest import AnnotationFile, AnnotationRecord
from memtune.corpora.text_blocks import SENTENCE_END, Block
from memtune.corpora.tokenisation.tokeniser import Tokeniser
from memtune.errors import CorpusError
from memtune.number_format import format_count
from memtune.storage.folder import Folder
from memtune.storage.local_files import create_temporary_file, translate_spool_errors

_SENTENCES = pa.schema({"words": pa.list_(pa.int32())})
"""One row per sentence: its word numbers."""

Numbers = npt.NDArray[np.int32]


class WordTable:
    """All distinct words in order of first appearance; word number 0 is SENTENCE_END."""

    def __init__(self, words: Sequence[str] = (SENTENCE_END,)) -> None:
        self.words: pa.Array = pa.array(words, pa.string())

    def __len__(self) -> int:
        return len(self.words)

    def number(self, words: pa.Array) -> Numbers:
        """Adds the words, dictionary-encoded or not, and returns the word number of each."""
        encoded = words.dictionary_encode()
        known_numbers = pc.index_in(encoded.dictionary, value_set=self.words)
        new = encoded.dictionary.filter(known_numbers.is_null())
        numbers = known_numbers.fill_null(-1).to_numpy().copy()
        numbers[numbers < 0] = np.arange(len(self.words), len(self.words) + len(new))
        self.words = pa.concat_arrays([self.words, new])
        # Arrow's pool keeps the memory that this has freed; this call returns it to the system.
        pa.default_memory_pool().release_unused()
        found: Numbers = numbers[encoded.indices.to_numpy()]
        return found


class SplitCounter:
    """The words of one split as word numbers in a temporary file, and the count of each word.

    `full_sentence_count` are the sentences with words. `text_words` adds up those of blocks. `stack` closes
    the temporary file, which deletes it.
    """

    def __init__(self, table: WordTable, stack: ExitStack) -> None:
        self.token_count = 0
        self.sentence_count = 0
        self.full_sentence_count = 0
        self.longest_sentence_tokens = 0
        self.text_words = 0
        self._table = table
        self._counts = np.zeros(1, np.int64)
        self._spool = _Spool(_SENTENCES, stack)

    @property
    def word_count(self) -> int:
        """Number of tokens without sentence ends."""
        return self.token_count - self.sentence_count

    def add(self, block: Block) -> None:
        """Counts a block's words and writes their numbers."""
        if not len(block.lengths):
            return
        self.token_count += len(block.words)
        self.sentence_count += len(block.lengths)
        self.full_sentence_count += int(np.count_nonzero(block.lengths > 1))
        self.text_words += block.text_words
        self.longest_sentence_tokens = max(self.longest_sentence_tokens, int(block.lengths.max()))
        numbers = self._table.number(block.words)
        self._counts = self.counts + np.bincount(numbers, minlength=len(self._table))
        offsets = np.concatenate([[0], block.lengths]).cumsum(dtype=np.int32)
        sentences = pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers))
        self._spool.add(pa.RecordBatch.from_arrays([sentences], schema=_SENTENCES))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Count in this split of every word of the table, (words,) int64."""
        return np.pad(self._counts, (0, len(self._table) - len(self._counts)))

    def read_blocks(self) -> Iterator[tuple[Numbers, Numbers]]:
        """Yields for each block the word numbers of its tokens, and its sentence lengths."""
        for batch in self._spool.read_batches():
            sentences = batch.column(0)
            yield sentences.values.to_numpy(), np.diff(sentences.offsets.to_numpy())


_MAX_LABELS = 2**15  # label indices are stored as int16


class AnnotationTables:
    """All annotations of one import, in temporary files by kind and split, which `stack` closes."""

    def __init__(self, table: WordTable, stack: ExitStack) -> None:
        self._table = table
        self._stack = stack
        self._spools: dict[tuple[str, str], _Spool] = {}
        self._question_words: list[Numbers] = []
        self._labels: dict[str, WordTable] = {}

    def __bool__(self) -> bool:
        return bool(self._spools)

    def add(self, split: str, annotations: Mapping[str, pa.RecordBatch], first: int) -> None:
        """Appends a block's annotations; `first` is the index in the split of the block's first sentence."""
        for kind, rows in annotations.items():
            described = ANNOTATION_KINDS[kind]
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            for name in described.sentence_columns:
                columns[name] = pc.add(columns[name], first)
            for name in described.word_columns:
                numbers = self._table.number(columns[name])
                self._question_words.append(np.unique(numbers))
                columns[name] = pa.array(numbers, pa.int32())
            for name in described.label_columns:
                columns[name] = self._index_labels(kind, columns[name])
            if (kind, split) not in self._spools:
                self._spools[kind, split] = _Spool(described.stored_schema, self._stack)
            stored = pa.RecordBatch.from_arrays(list(columns.values()), schema=described.stored_schema)
            self._spools[kind, split].add(stored)

    @property
    def question_words(self) -> Numbers:
        """Sorted word numbers of all word columns; these words need not occur in any sentence."""
        return np.unique(np.concatenate([np.empty(0, np.int32), *self._question_words]))

    def check_trees(self, split: str, sentences: int) -> None:
        """Raises CorpusError if a split of so many sentences has trees for only some of them."""
        trees = self._spools.get(("trees", split))
        if trees is not None and trees.rows != sentences:
            count = format_count(sentences, "sentence")
            raise CorpusError(f"the {split} split has trees for {trees.rows:,} of its {count}")

    def write(
        self, corpus: Folder, folder: str, ids: Numbers
    ) -> tuple[dict[str, AnnotationRecord], dict[str, Any]]:
        """Writes the tables into the folder `folder` of a corpus.

        `ids` maps each word number to its vocabulary id. Returns manifest records and digests by kind.
        """
        annotations: dict[str, AnnotationRecord] = {}
        digests: dict[str, Any] = {}
        for kind in sorted({kind for kind, _ in self._spools}):
            found = self._labels[kind].words.to_pylist() if kind in self._labels else ()
            labels = (*ANNOTATION_KINDS[kind].labels, *found)
            files, contents = {}, {}
            for split in [split for other, split in self._spools if other == kind]:
                content = ColumnDigests(len(ANNOTATION_KINDS[kind].columns))
                batches = self._read_stored(kind, split, ids, content)
                file = write_batches(corpus, f"{folder}/{split}-{kind}.arrow", batches)
                contents[split] = content.hexdigests
                files[split] = AnnotationFile(**file, rows=self._spools[kind, split].rows)
            annotations[kind] = AnnotationRecord(labels=labels, files=files)
            digests[kind] = {"labels": list(labels), **contents}
        return annotations, digests

    def _read_stored(
        self, kind: str, split: str, ids: Numbers, content: ColumnDigests
    ) -> Iterator[pa.RecordBatch]:
        """The rows with vocabulary ids, which are added to `content`."""
        for rows in self._spools[kind, split].read_batches():
            for name in ANNOTATION_KINDS[kind].word_columns:
                index = rows.schema.get_field_index(name)
                column = pa.array(ids[rows.column(index).to_numpy()], pa.int32())
                rows = rows.set_column(index, name, column)
            content.add(*map(encode_column, rows.columns))
            yield rows

    def _index_labels(self, kind: str, lists: pa.Array) -> pa.Array:
        labels = self._labels.setdefault(kind, WordTable(()))
        values = labels.number(lists.flatten()).astype(np.int16)
        if len(labels) > _MAX_LABELS:
            raise CorpusError(
                f"{kind} have more than {_MAX_LABELS} different labels; check that the column holds labels"
            )
        # Offsets that start at 0: those of a sliced array do not, while `flatten` drops the rows before it.
        offsets = lists.offsets.to_numpy()
        return pa.ListArray.from_arrays(
            pa.array(offsets - offsets[0], pa.int32()), pa.array(values, pa.int16())
        )


class CountedText:
    """The words of an import, or the tokens that `tokeniser` makes of them, with their annotations.

    `is_raw` means that the words are the characters or bytes of the text. `stack` closes the temporary files,
    which deletes them.
    """

    def __init__(
        self,
        splits: Iterable[str],
        stack: ExitStack,
        *,
        is_raw: bool = False,
        tokeniser: Tokeniser | None = None,
    ) -> None:
        self.table = WordTable()
        self.counters = {split: SplitCounter(self.table, stack) for split in splits}
        self.annotations = AnnotationTables(self.table, stack)
        self.is_raw = is_raw
        self.tokeniser = tokeniser

    def add(self, split: str, block: Block) -> None:
        """Appends a block to a split."""
        self.annotations.add(split, block.annotations, self.counters[split].sentence_count)
        self.counters[split].add(block)


class _Spool:
    """The rows of a table in a temporary file."""

    def __init__(self, schema: pa.Schema, stack: ExitStack) -> None:
        self.rows = 0
        with translate_spool_errors():
            self._file = stack.enter_context(create_temporary_file())
            self._writer = stack.enter_context(pa.ipc.new_stream(self._file, schema))

    def add(self, batch: pa.RecordBatch) -> None:
        with translate_spool_errors():
            self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        self._file.flush()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)
