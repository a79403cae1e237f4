"""Sources besides files: data sets of a program, and a file that is divided into splits while it is read.

A data set is one of `datasets` of Hugging Face, an Arrow table, a pandas frame, or a list of records. Nothing
of these libraries is imported: a data set gives batches of columns (`iter`, as that of Hugging Face), record
batches (`to_batches`, as Arrow), or records as mappings.

A file is divided by a seed. Sentences that belong together form a group: the candidates of one question, the
two sentences of one pair. A hash of the seed and of the group's first sentence selects the split. Equal
sentences, and pairs with the same premise, therefore get the same split at any position in the file. The
split sizes match the shares only in expectation.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memtune.arguments import describe_value
from memtune.corpora.formats.records import RecordOptions, check_column, extract_text
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.corpora.store.manifest import SPLITS
from memtune.corpora.text_blocks import BadLineError, Block, TextFile
from memtune.errors import ArgumentError, CorpusError

_BATCH_ROWS = 1024
_SPLIT_BY_NAME = {
    "train": "train",
    "validation": "valid",
    "valid": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}


@dataclass(frozen=True)
class DataSet:
    """A column of a data set as a source.

    `data` is a `datasets.Dataset` or `IterableDataset`, a `pyarrow.Table`, a pandas frame, or records as
    mappings. `column` and `content` are as in the format "parquet".
    """

    data: Any
    column: str = "text"
    content: Literal["lines", "prose"] = "lines"

    def __post_init__(self) -> None:
        """Raises ArgumentError for data that have no records, such as the path of a file."""
        if isinstance(self.data, str | Path) or not (
            hasattr(self.data, "to_batches") or isinstance(self.data, Iterable)
        ):
            raise ArgumentError(
                "data must be a datasets.Dataset, a pyarrow.Table, a pandas frame, or records as mappings; "
                f"got {describe_value(self.data)}; a file is TextFile(...)"
            )

    @property
    def options(self) -> RecordOptions:
        """The options of records."""
        return RecordOptions(column=self.column, content=self.content)

    def read_texts(self) -> Iterator[str]:
        """The texts of the column, missing ones left out. Raises CorpusError for another kind of value."""
        names = getattr(self.data, "column_names", None)
        if isinstance(names, list):
            check_column(self.column, names)
        for number, record in enumerate(self._read_records()):
            try:
                text = extract_text(record, self.column)
            except BadLineError as error:
                raise CorpusError(f"record {number}: {error.reason}") from None
            if text is not None:
                yield text

    def _read_records(self) -> Iterator[Any]:
        data = self.data
        if hasattr(data, "select_columns"):  # other columns, such as images, are not decoded
            data = data.select_columns([self.column])
        if hasattr(data, "iter") and callable(data.iter):
            for batch in data.iter(_BATCH_ROWS):
                yield from ({self.column: value} for value in batch[self.column])
        elif hasattr(data, "to_batches"):
            for batch in data.select([self.column]).to_batches(_BATCH_ROWS):
                yield from batch.to_pylist()
        elif hasattr(data, "to_dict") and hasattr(data, "columns"):
            check_column(self.column, list(data.columns))
            yield from ({self.column: value} for value in data[self.column].tolist())
        else:
            yield from (dict(record) if isinstance(record, Mapping) else record for record in data)


def find_splits(
    data_sets: Mapping[str, Any], column: str = "text", content: Literal["lines", "prose"] = "lines"
) -> dict[str, DataSet]:
    """The sources of a mapping of splits, such as a `datasets.DatasetDict`; "validation" becomes "valid".

    Raises CorpusError for a mapping with other splits than train, validation and test.
    """
    unknown = [name for name in data_sets if name not in _SPLIT_BY_NAME]
    if unknown:
        raise CorpusError(f"no split is called {', '.join(unknown)}; give train, validation and test")
    return {_SPLIT_BY_NAME[name]: DataSet(data, column, content) for name, data in data_sets.items()}


_DIGEST_BYTES = 8


@dataclass(frozen=True)
class Division:
    """A file to divide into splits in proportion to `shares`."""

    source: TextFile
    shares: Mapping[str, float] = field(default_factory=lambda: dict(zip(SPLITS, (80, 10, 10), strict=True)))
    seed: int = 0

    def __post_init__(self) -> None:
        if set(self.shares) != set(SPLITS) or min(self.shares.values()) <= 0:
            raise CorpusError(f"a text is divided into {', '.join(SPLITS)} by shares above 0, as in 80,10,10")


def divide_block(block: Block, division: Division) -> Iterator[tuple[str, Block]]:
    """Yields each split that gets sentences of the block, and a block of these sentences."""
    offsets = np.concatenate([[0], np.cumsum(block.lengths, dtype=np.int32)])
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), block.words)
    prefix = f"{division.seed}\0".encode()
    hashes = np.array(
        [
            int.from_bytes(hashlib.blake2b(prefix + sentence, digest_size=_DIGEST_BYTES).digest())
            for sentence in pc.binary_join(lists, " ").cast(pa.binary()).to_pylist()
        ],
        np.float64,
    ) / float(2 ** (8 * _DIGEST_BYTES))
    ends = np.cumsum([division.shares[split] for split in SPLITS], dtype=np.float64)
    choices = np.searchsorted(ends / ends[-1], hashes[_find_group_starts(block)], side="right")
    for index, split in enumerate(SPLITS):
        chosen = choices == index
        if chosen.any():
            yield split, _filter_block(block, chosen)


def _find_group_starts(block: Block) -> npt.NDArray[np.int64]:
    """Index of the first sentence of each sentence's group, (sentences,)."""
    starts = np.arange(len(block.lengths))
    if pairs := block.annotations.get("inference"):
        starts[pairs["hypothesis"].to_numpy()] = pairs["premise"].to_numpy()
    if questions := block.annotations.get("completion"):
        for first, candidates in zip(
            questions["first"].to_pylist(), questions["candidates"].to_pylist(), strict=True
        ):
            starts[first : first + candidates] = first
    return starts


def _filter_block(block: Block, chosen: npt.NDArray[np.bool_]) -> Block:
    words = block.words.filter(pa.array(np.repeat(chosen, block.lengths)))
    new_indices = np.cumsum(chosen) - 1
    annotations = {}
    for kind, rows in block.annotations.items():
        names = ANNOTATION_KINDS[kind].sentence_columns
        rows = rows.filter(pa.array(chosen[rows[names[0]].to_numpy()] if names else chosen))
        for name in names:
            column = pa.array(new_indices[rows[name].to_numpy()], pa.int64())
            rows = rows.set_column(rows.schema.get_field_index(name), name, column)
        annotations[kind] = rows
    return Block(words, block.lengths[chosen], annotations)
