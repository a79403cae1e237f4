"""Data sets of a program as sources: `datasets` of Hugging Face, Arrow tables, pandas, lists of records.

Nothing of these libraries is imported: a data set gives batches of columns (`iter`, as that of Hugging Face),
record batches (`to_batches`, as Arrow), or records as mappings.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memtune.arguments import describe_value
from memtune.corpora.blocks.record_texts import (
    RecordOptions,
    describe_missing_column,
    extract_text,
    make_record_blocks,
)
from memtune.corpora.blocks.text_blocks import BadLineError, Block
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

    def read_blocks(self, texts: Iterable[str]) -> Iterator[Block]:
        """The sentences of texts of this data set."""
        return make_record_blocks(texts, self.options, "the data set")

    def read_texts(self) -> Iterator[str]:
        """The texts of the column, missing ones left out. Raises CorpusError for another kind of value."""
        names = getattr(self.data, "column_names", None)
        if isinstance(names, list) and self.column not in names:
            raise CorpusError(describe_missing_column(self.column, names))
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
            if self.column not in data.columns:
                raise CorpusError(describe_missing_column(self.column, list(map(str, data.columns))))
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
