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

import numpy as np
import pyarrow as pa

from memtune.corpora.store.arrow_files import read_table
from memtune.errors import CorpusError, did_you_mean

SENTIMENT_LABELS = ("very negative", "negative", "neutral", "positive", "very positive")
INFERENCE_LABELS = ("entailment", "neutral", "contradiction")

Annotations = Mapping[str, Mapping[str, pa.Table]]
"""Kind -> split -> memory-mapped table."""


@dataclass(frozen=True)
class AnnotationKind:
    """The columns of one kind of annotation.

    columns: all columns as formats produce them. sentence_columns: columns with sentence indices.
    word_columns: columns with words, text in the input and vocabulary ids in the store. label_columns:
    columns whose text is stored as indices into labels collected at the import. labels: the kind's fixed
    labels.
    """

    columns: Mapping[str, pa.DataType]
    sentence_columns: tuple[str, ...] = ()
    word_columns: tuple[str, ...] = ()
    label_columns: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def input_schema(self) -> pa.Schema:
        """The columns as formats produce them."""
        return pa.schema(dict(self.columns))

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns as a corpus stores them."""
        ids, indices = pa.int32(), pa.list_(pa.int16())
        changed = dict.fromkeys(self.word_columns, ids) | dict.fromkeys(self.label_columns, indices)
        return pa.schema({**self.columns, **changed})


_INT8, _INT32, _INT64, _STRING = pa.int8(), pa.int32(), pa.int64(), pa.string()
ANNOTATION_KINDS: Mapping[str, AnnotationKind] = {
    "completion": AnnotationKind(
        {"first": _INT64, "candidates": _INT8, "blank": _INT32, "answer": _INT8, "question": _STRING},
        sentence_columns=("first",),
    ),
    "agreement": AnnotationKind(
        {"sentence": _INT64, "verb": _INT32, "right": _STRING, "wrong": _STRING, "attractors": _INT32},
        sentence_columns=("sentence",),
        word_columns=("right", "wrong"),
    ),
    "sentiment": AnnotationKind(
        {"sentence": _INT64, "start": _INT32, "stop": _INT32, "label": _INT8, "root": pa.bool_()},
        sentence_columns=("sentence",),
        labels=SENTIMENT_LABELS,
    ),
    "inference": AnnotationKind(
        {"premise": _INT64, "hypothesis": _INT64, "label": _INT8},
        sentence_columns=("premise", "hypothesis"),
        labels=INFERENCE_LABELS,
    ),
    "trees": AnnotationKind(
        {"heads": pa.list_(_INT32), "relations": pa.list_(_STRING)}, label_columns=("relations",)
    ),
}
"""The columns of each kind."""


def encode_column(column: pa.Array) -> bytes:
    """What the digest of a column counts of a batch of its rows.

    The digest of a column of lists depends on how rows are divided into batches, which a file keeps.
    """
    if pa.types.is_list(column.type):
        lengths = np.diff(column.offsets.to_numpy())
        return b"".join((lengths.tobytes(), encode_column(column.flatten())))
    if pa.types.is_string(column.type):
        return "".join(f"{text}\0" for text in column.to_pylist()).encode()
    return np.asarray(column).tobytes()


def read_annotation_table(content: pa.Buffer, name: str, kind: str) -> pa.Table:
    """The table in the content of a file. Raises CorpusError; its message names the file as `name`."""
    if kind not in ANNOTATION_KINDS:
        raise CorpusError(
            f'{name}: unknown kind of annotation "{kind}"; {did_you_mean(kind, ANNOTATION_KINDS)}'
        )
    return read_table(content, ANNOTATION_KINDS[kind].stored_schema, name)
