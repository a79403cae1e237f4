"""Annotations on their way from a format into a store, beside the words they speak of.

As with the words (`counting`), blocks go to temporary files at once: words as numbers of the table of all
words, relations as indices into the labels, by first appearance. When the vocabulary is chosen, numbers
become ids and the tables go to the store, a batch at a time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.annotations import KINDS, TableDigest
from memtune.corpora.counting import WordTable, spooling, temporary_file
from memtune.corpora.location import HashingSink, Store
from memtune.corpora.manifest import Annotation, AnnotationFile
from memtune.errors import CorpusError

__all__ = ["AnnotationTables"]

_MOST_LABELS = 2**15


class AnnotationTables:
    """All annotations of one import, in temporary files by kind and split."""

    def __init__(self, table: WordTable) -> None:
        self._table = table
        self._spools: dict[tuple[str, str], _Spool] = {}
        self._asked: list[npt.NDArray[np.int32]] = []
        self._labels: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._spools)

    def add(self, split: str, annotations: Mapping[str, pa.RecordBatch], first: int) -> None:
        """Puts a block's annotations away; `first` is the number of its first sentence in the split."""
        for kind, rows in annotations.items():
            columns = dict(zip(rows.schema.names, rows.columns, strict=True))
            for name in KINDS[kind].sentences:
                columns[name] = pc.add(columns[name], first)
            for name in KINDS[kind].words:
                columns[name] = self._numbers(columns[name])
            for name in KINDS[kind].named:
                columns[name] = self._indices(kind, columns[name])
            stored = pa.RecordBatch.from_arrays(list(columns.values()), schema=KINDS[kind].stored)
            if (kind, split) not in self._spools:
                self._spools[kind, split] = _Spool(KINDS[kind].stored)
            self._spools[kind, split].add(stored)

    @property
    def asked(self) -> npt.NDArray[np.int32]:
        """Numbers of the words that annotations ask for, whether a sentence has them or not."""
        return np.unique(np.concatenate([np.empty(0, np.int32), *self._asked]))

    def check(self, sentences: Mapping[str, int]) -> None:
        """A CorpusError where a split has trees for some of its sentences only."""
        for (kind, split), spool in self._spools.items():
            if not KINDS[kind].sentences and spool.rows != sentences[split]:
                raise CorpusError(
                    f"the {split} split has {kind} for {spool.rows} of its {sentences[split]} sentences"
                )

    def write(
        self, store: Store, name: str, folder: str, ids: npt.NDArray[np.int32]
    ) -> tuple[dict[str, Annotation], dict[str, Any]]:
        """Writes the tables into the folder; what the manifest says of them, and digests of their content.

        `ids` gives the id of each word of the table.
        """
        annotations: dict[str, Annotation] = {}
        digests: dict[str, Any] = {}
        for kind in sorted({kind for kind, _ in self._spools}):
            labels = (*KINDS[kind].labels, *self._labels.get(kind, ()))
            files, contents = {}, {}
            for split in [split for other, split in self._spools if other == kind]:
                path = f"{folder}/{split}-{kind}.arrow"
                with store.new_file(name, path) as sink:
                    contents[split] = self._write_table(sink, kind, split, ids)
                rows = self._spools[kind, split].rows
                files[split] = AnnotationFile(**sink.record(path).model_dump(), rows=rows)
            annotations[kind] = Annotation(labels=labels, files=files)
            digests[kind] = {"labels": list(labels), **contents}
        return annotations, digests

    def _write_table(self, sink: HashingSink, kind: str, split: str, ids: npt.NDArray[np.int32]) -> list[str]:
        content = TableDigest(KINDS[kind].stored)
        with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), KINDS[kind].stored) as writer:
            for rows in self._spools[kind, split].batches():
                batch = _with_ids(kind, rows, ids)
                content.add(batch)
                writer.write_batch(batch)
        return content.hexadecimal

    def close(self) -> None:
        """Frees the temporary files."""
        for spool in self._spools.values():
            spool.close()

    def _numbers(self, words: pa.Array) -> pa.Array:
        encoded = words.dictionary_encode()
        (numbers,) = self._table.merge([encoded.dictionary])
        self._asked.append(numbers)
        return pa.array(numbers[encoded.indices.to_numpy()], pa.int32())

    def _indices(self, kind: str, lists: pa.Array) -> pa.Array:
        encoded = lists.flatten().dictionary_encode()
        labels = self._labels.setdefault(kind, [])
        known = {label: index for index, label in enumerate(labels)}
        indices = [known.setdefault(label, len(known)) for label in encoded.dictionary.to_pylist()]
        if len(known) > _MOST_LABELS:
            raise CorpusError(
                f"more than {_MOST_LABELS} different labels of {kind}; are these labels at all?"
            )
        labels[:] = known
        values = np.array(indices, np.int16)[encoded.indices.to_numpy()]
        return pa.ListArray.from_arrays(_offsets(lists), pa.array(values, pa.int16()))


class _Spool:
    """The rows of one kind and split in a temporary file."""

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        with spooling():
            self._file = temporary_file()
            self._writer = pa.ipc.new_stream(self._file, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        with spooling():
            self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._file.flush()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def close(self) -> None:
        self._writer.close()
        self._file.close()


def _with_ids(kind: str, batch: pa.RecordBatch, ids: npt.NDArray[np.int32]) -> pa.RecordBatch:
    for name in KINDS[kind].words:
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, name, pa.array(ids[batch.column(index).to_numpy()], pa.int32()))
    return batch


def _offsets(lists: pa.Array) -> pa.Array:
    offsets = lists.offsets.to_numpy()
    return pa.array(offsets - offsets[0], pa.int32())
