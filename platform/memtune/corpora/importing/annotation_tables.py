"""Collect the annotations of an import and write them to a store as tables.

Each block of annotations goes to temporary files as soon as it is read, as the text does (`word_counts`). The
files hold words as word numbers of the WordTable, and relations as indices into a list of labels in order of
first appearance. After the vocabulary is selected, ids replace word numbers and the tables are written to the
store one batch at a time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.importing.word_counts import WordTable
from memtune.corpora.store.annotations import ANNOTATION_KINDS, TableDigest
from memtune.corpora.store.corpus_store import CorpusStore, describe_file
from memtune.corpora.store.manifest import AnnotationFile, AnnotationRecord
from memtune.errors import CorpusError
from memtune.storage.digests import HashingSink
from memtune.storage.local_files import create_temporary_file, translate_spool_errors

_MAX_LABELS = 2**15  # label indices are stored as int16


class AnnotationTables:
    """All annotations of one import, in temporary files by kind and split."""

    def __init__(self, table: WordTable) -> None:
        self._table = table
        self._spools: dict[tuple[str, str], _Spool] = {}
        self._question_words: list[npt.NDArray[np.int32]] = []
        self._labels: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._spools)

    def add(self, split: str, annotations: Mapping[str, pa.RecordBatch], first: int) -> None:
        """Appends a block's annotations; `first` is the index in the split of the block's first sentence."""
        for kind, rows in annotations.items():
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            for name in ANNOTATION_KINDS[kind].sentence_columns:
                columns[name] = pc.add(columns[name], first)
            for name in ANNOTATION_KINDS[kind].word_columns:
                columns[name] = self._number_words(columns[name])
            for name in ANNOTATION_KINDS[kind].label_columns:
                columns[name] = self._index_labels(kind, columns[name])
            stored = pa.RecordBatch.from_arrays(
                list(columns.values()), schema=ANNOTATION_KINDS[kind].stored_schema
            )
            if (kind, split) not in self._spools:
                self._spools[kind, split] = _Spool(ANNOTATION_KINDS[kind].stored_schema)
            self._spools[kind, split].add(stored)

    @property
    def question_words(self) -> npt.NDArray[np.int32]:
        """Sorted word numbers of all word columns; these words need not occur in any sentence."""
        return np.unique(np.concatenate([np.empty(0, np.int32), *self._question_words]))

    def check(self, sentences: Mapping[str, int]) -> None:
        """Raises CorpusError if a split has trees for only some of its sentences.

        `sentences` maps each split to its number of sentences.
        """
        for (kind, split), spool in self._spools.items():
            if not ANNOTATION_KINDS[kind].sentence_columns and spool.rows != sentences[split]:
                raise CorpusError(
                    f"the {split} split has {kind} for {spool.rows} of its {sentences[split]} sentences"
                )

    def write(
        self, store: CorpusStore, name: str, folder: str, ids: npt.NDArray[np.int32]
    ) -> tuple[dict[str, AnnotationRecord], dict[str, Any]]:
        """Writes the tables into the folder; returns manifest records and content digests by kind.

        `ids` maps each word number to its vocabulary id.
        """
        annotations: dict[str, AnnotationRecord] = {}
        digests: dict[str, Any] = {}
        for kind in sorted({kind for kind, _ in self._spools}):
            labels = (*ANNOTATION_KINDS[kind].labels, *self._labels.get(kind, ()))
            files, contents = {}, {}
            for split in [split for other, split in self._spools if other == kind]:
                path = f"{folder}/{split}-{kind}.arrow"
                with store.create_file(name, path) as sink:
                    contents[split] = self._write_table(sink, kind, split, ids)
                rows = self._spools[kind, split].rows
                files[split] = AnnotationFile(**describe_file(path, sink).model_dump(), rows=rows)
            annotations[kind] = AnnotationRecord(labels=labels, files=files)
            digests[kind] = {"labels": list(labels), **contents}
        return annotations, digests

    def _write_table(self, sink: HashingSink, kind: str, split: str, ids: npt.NDArray[np.int32]) -> list[str]:
        content = TableDigest(ANNOTATION_KINDS[kind].stored_schema)
        with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), ANNOTATION_KINDS[kind].stored_schema) as writer:
            for rows in self._spools[kind, split].read_batches():
                batch = _replace_words_by_ids(kind, rows, ids)
                content.add(batch)
                writer.write_batch(batch)
        return content.hexdigests

    def close(self) -> None:
        """Closes the temporary files, which deletes them."""
        for spool in self._spools.values():
            spool.close()

    def _number_words(self, words: pa.Array) -> pa.Array:
        encoded = words.dictionary_encode()
        (numbers,) = self._table.merge([encoded.dictionary])
        self._question_words.append(numbers)
        return pa.array(numbers[encoded.indices.to_numpy()], pa.int32())

    def _index_labels(self, kind: str, lists: pa.Array) -> pa.Array:
        encoded = lists.flatten().dictionary_encode()
        labels = self._labels.setdefault(kind, [])
        known = {label: index for index, label in enumerate(labels)}
        indices = [known.setdefault(label, len(known)) for label in encoded.dictionary.to_pylist()]
        if len(known) > _MAX_LABELS:
            raise CorpusError(
                f"{kind} have more than {_MAX_LABELS} different labels; check that the column holds labels"
            )
        labels[:] = known
        values = np.array(indices, np.int16)[encoded.indices.to_numpy()]
        return pa.ListArray.from_arrays(_rebase_offsets(lists), pa.array(values, pa.int16()))


class _Spool:
    """The rows of one kind and split in a temporary file."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        with translate_spool_errors():
            self._file = create_temporary_file()
            self._writer = pa.ipc.new_stream(self._file, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        with translate_spool_errors():
            self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        self._file.flush()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def close(self) -> None:
        self._writer.close()
        self._file.close()


def _replace_words_by_ids(kind: str, batch: pa.RecordBatch, ids: npt.NDArray[np.int32]) -> pa.RecordBatch:
    for name in ANNOTATION_KINDS[kind].word_columns:
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, name, pa.array(ids[batch.column(index).to_numpy()], pa.int32()))
    return batch


def _rebase_offsets(lists: pa.Array) -> pa.Array:
    """Offsets that start at 0: those of a sliced array do not, while `flatten` drops the rows before it."""
    offsets = lists.offsets.to_numpy()
    return pa.array(offsets - offsets[0], pa.int32())
