"""Annotations of a corpus's sentences: tables whose columns depend on the kind of annotation.

    completion  a question: `candidates` consecutive sentences from `first` on that differ at word `blank`;
                `answer` counts from 0, or is -1 if unknown; `question` is the question's name in the source
    agreement   a verb at word `verb` of a sentence, the ids of its right and its wrong form, and the number
                of attractors between the verb and its subject
    sentiment   a label for the words `start` to `stop` - 1 of a sentence; `root` marks the whole sentence
    inference   a premise and a hypothesis, both sentences of the corpus, with a label
    trees       one row per sentence: for each word the position of its head, -1 for a root, and its relation

Sentence indices count from 0 within a split, word positions from 0 within a sentence; `<eos>` is not a word.
Formats produce words and relations as text; a corpus stores vocabulary ids and label indices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from memtune.corpora.store.arrow_files import map_file, read_table
from memtune.corpora.store.manifest import AnnotationRecord
from memtune.errors import CorpusError, did_you_mean
from memtune.storage.digests import ContentDigest

SENTIMENT_LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
INFERENCE_LABELS = ("entailment", "neutral", "contradiction")

Annotations = Mapping[str, Mapping[str, pa.Table]]
"""Kind -> split -> memory-mapped table."""


@dataclass(frozen=True)
class AnnotationKind:
    """The columns of one kind of annotation.

    input_schema: all columns as formats produce them. sentence_columns: columns with sentence indices.
    word_columns: columns with words, text in the input and vocabulary ids in the store. label_columns:
    columns whose text is stored as indices into labels collected at the import. labels: the kind's fixed
    labels.
    """

    input_schema: pa.Schema
    sentence_columns: tuple[str, ...] = ()
    word_columns: tuple[str, ...] = ()
    label_columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns as a corpus stores them."""
        types = dict.fromkeys(self.word_columns, pa.int32()) | dict.fromkeys(
            self.label_columns, pa.list_(pa.int16())
        )
        return pa.schema([(field.name, types.get(field.name, field.type)) for field in self.input_schema])


ANNOTATION_KINDS: Mapping[str, AnnotationKind] = {
    "completion": AnnotationKind(
        pa.schema(
            {
                "first": pa.int64(),
                "candidates": pa.int8(),
                "blank": pa.int32(),
                "answer": pa.int8(),
                "question": pa.string(),
            }
        ),
        sentence_columns=("first",),
    ),
    "agreement": AnnotationKind(
        pa.schema(
            {
                "sentence": pa.int64(),
                "verb": pa.int32(),
                "right": pa.string(),
                "wrong": pa.string(),
                "attractors": pa.int32(),
            }
        ),
        sentence_columns=("sentence",),
        word_columns=("right", "wrong"),
    ),
    "sentiment": AnnotationKind(
        pa.schema(
            {
                "sentence": pa.int64(),
                "start": pa.int32(),
                "stop": pa.int32(),
                "label": pa.int8(),
                "root": pa.bool_(),
            }
        ),
        sentence_columns=("sentence",),
        labels=SENTIMENT_LABELS,
    ),
    "inference": AnnotationKind(
        pa.schema({"premise": pa.int64(), "hypothesis": pa.int64(), "label": pa.int8()}),
        sentence_columns=("premise", "hypothesis"),
        labels=INFERENCE_LABELS,
    ),
    "trees": AnnotationKind(
        pa.schema({"heads": pa.list_(pa.int32()), "relations": pa.list_(pa.string())}),
        label_columns=("relations",),
    ),
}
"""The columns of each kind."""


class TableDigest:
    """Digest of a table's content; it does not depend on how the rows are divided into batches."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [ContentDigest() for _ in schema]

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends a batch of rows."""
        for content, column in zip(self._columns, batch.columns, strict=True):
            if pa.types.is_list(column.type):
                content.add(np.diff(column.offsets.to_numpy()).tobytes())
                column = column.flatten()
            if pa.types.is_string(column.type):
                content.add("".join(f"{text}\0" for text in column.to_pylist()).encode())
            else:
                content.add(column.to_numpy(zero_copy_only=False).tobytes())

    @property
    def hexdigests(self) -> list[str]:
        """Hexadecimal SHA-256 of each column."""
        return [content.sha256 for content in self._columns]


def digest_table(table: pa.Table) -> list[str]:
    """Hexadecimal SHA-256 of each column of a table."""
    content = TableDigest(table.schema)
    for batch in table.to_batches():
        content.add(batch)
    return content.hexdigests


def map_annotations(folder: Path, annotations: Mapping[str, AnnotationRecord]) -> Annotations:
    """Memory-maps the tables in a corpus's folder. Raises CorpusError as `read_annotation_table` does."""
    return {
        kind: {
            split: read_annotation_table(map_file(folder / file.path), kind, str(folder / file.path))
            for split, file in annotation.files.items()
        }
        for kind, annotation in annotations.items()
    }


def read_annotation_table(content: pa.Buffer, kind: str, name: str) -> pa.Table:
    """The table in the content of a file. Raises CorpusError; its message names the file as `name`."""
    if kind not in ANNOTATION_KINDS:
        raise CorpusError(
            f'{name}: unknown kind of annotation "{kind}"; {did_you_mean(kind, ANNOTATION_KINDS)}'
        )
    return read_table(content, ANNOTATION_KINDS[kind].stored_schema, name)
