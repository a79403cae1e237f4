"""Annotations: what is known of a corpus' sentences, as tables whose columns the kind fixes.

    completion  a question: `candidates` consecutive sentences from `first` on that differ at word `blank`;
                `answer` counts from 0, -1 where it is not known; `question` is its name in the source
    agreement   a verb at word `verb` of a sentence, the ids of its right and its wrong form, and how many
                attractors stand between it and its subject
    sentiment   the words `start` to `stop` - 1 of a sentence with a label; `root` for the whole sentence
    inference   a premise and a hypothesis, both sentences of the corpus, with a label
    trees       a row a sentence: for each word the position of its head, -1 for a root, and its relation

Sentences count from 0 within their split, words from 0 within their sentence; `<eos>` is no word. Formats
give words and relations as text; a corpus holds ids of its vocabulary and indices into the labels.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from memtune.corpora.manifest import Annotation

__all__ = ["KINDS", "SENTIMENTS", "Annotations", "Kind", "TableDigest", "map_annotations"]

SENTIMENTS = ("very negative", "negative", "neutral", "positive", "very positive")
INFERENCES = ("entailment", "neutral", "contradiction")

Annotations = Mapping[str, Mapping[str, pa.Table]]
"""Kind -> split -> its table, mapped."""


@dataclass(frozen=True)
class Kind:
    """The columns of one kind of annotation.

    given: as formats give them; stored: as a corpus holds them; sentences: those that number sentences;
    words: those of words, given as text and stored as ids; named: those whose text becomes labels; labels: of
    a kind whose labels are always the same.
    """

    given: pa.Schema
    sentences: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def stored(self) -> pa.Schema:
        """The columns as a corpus holds them."""
        types = dict.fromkeys(self.words, pa.int32()) | dict.fromkeys(self.named, pa.list_(pa.int16()))
        return pa.schema([(field.name, types.get(field.name, field.type)) for field in self.given])


KINDS: Mapping[str, Kind] = {
    "completion": Kind(
        pa.schema(
            {
                "first": pa.int64(),
                "candidates": pa.int8(),
                "blank": pa.int32(),
                "answer": pa.int8(),
                "question": pa.string(),
            }
        ),
        sentences=("first",),
    ),
    "agreement": Kind(
        pa.schema(
            {
                "sentence": pa.int64(),
                "verb": pa.int32(),
                "right": pa.string(),
                "wrong": pa.string(),
                "attractors": pa.int32(),
            }
        ),
        sentences=("sentence",),
        words=("right", "wrong"),
    ),
    "sentiment": Kind(
        pa.schema(
            {
                "sentence": pa.int64(),
                "start": pa.int32(),
                "stop": pa.int32(),
                "label": pa.int8(),
                "root": pa.bool_(),
            }
        ),
        sentences=("sentence",),
        labels=SENTIMENTS,
    ),
    "inference": Kind(
        pa.schema({"premise": pa.int64(), "hypothesis": pa.int64(), "label": pa.int8()}),
        sentences=("premise", "hypothesis"),
        labels=INFERENCES,
    ),
    "trees": Kind(
        pa.schema({"heads": pa.list_(pa.int32()), "relations": pa.list_(pa.string())}), named=("relations",)
    ),
}
"""Kind -> its columns."""


class TableDigest:
    """Digest of a table's content, however its rows are cut into batches."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [hashlib.sha256() for _ in schema]

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes in the rows that follow."""
        for found, column in zip(self._columns, batch.columns, strict=True):
            if pa.types.is_list(column.type):
                found.update(np.diff(column.offsets.to_numpy()).tobytes())
                column = column.flatten()
            if pa.types.is_string(column.type):
                found.update("".join(f"{text}\0" for text in column.to_pylist()).encode())
            else:
                found.update(column.to_numpy(zero_copy_only=False).tobytes())

    @property
    def hexadecimal(self) -> list[str]:
        """SHA-256 by column."""
        return [found.hexdigest() for found in self._columns]


def map_annotations(folder: Path, annotations: Mapping[str, Annotation]) -> Annotations:
    """The tables of a corpus' folder, mapped; nothing is read before it is looked at."""
    return {
        kind: {split: _map_table(folder / file.path) for split, file in annotation.files.items()}
        for kind, annotation in annotations.items()
    }


def _map_table(path: Path) -> Any:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()
