"""Data sets of programs as sources of an import.

A data set is one of `datasets` of Hugging Face, an Arrow table, a pandas frame, or a list of records or
texts. Nothing of these libraries is imported: a data set gives batches of columns (`iter`, as that of Hugging
Face), record batches (`to_batches`, as Arrow), records as mappings, or the texts themselves.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from memtune.arguments import check_type, describe_value
from memtune.corpora.formats.records import RecordOptions, check_column, extract_text
from memtune.corpora.store.manifest import SPLITS
from memtune.corpora.text_blocks import BadLineError
from memtune.errors import ArgumentError, CorpusError

_BATCH_ROWS = 1024
_CHOICE = "DataSet(data, column=NAME)"
_SPLIT_BY_NAME = {name: name for name in SPLITS} | dict.fromkeys(("validation", "val", "dev"), "valid")


@dataclass(frozen=True)
class DataSet:
    """A column of a data set as a source.

    `data` is a `datasets.Dataset` or `IterableDataset`, a `pyarrow.Table`, a pandas frame, records as
    mappings, or the texts themselves. `column` and `content` are as in the format "parquet".
    """

    data: Any
    column: str = "text"
    content: Literal["lines", "prose"] = "lines"

    def __post_init__(self) -> None:
        """Raises ArgumentError for data that have no records, such as the path of a file, and for another
        column or content.
        """
        check_type("column", self.column, str, 'the name of a column, such as "text"')
        if self.content not in ("lines", "prose"):
            raise ArgumentError(f'content must be "lines" or "prose"; got {describe_value(self.content)}')
        if isinstance(self.data, str | Path | Mapping) or not (
            hasattr(self.data, "to_batches") or isinstance(self.data, Iterable)
        ):
            raise ArgumentError(
                "data must be a datasets.Dataset, a pyarrow.Table, a pandas frame, or a list of records or "
                f"texts; got {describe_value(self.data)}; a file is TextFile(...), and a mapping of splits "
                "is for find_splits"
            )

    @property
    def options(self) -> RecordOptions:
        """The options of records."""
        return RecordOptions(column=self.column, content=self.content)

    def read_texts(self) -> Iterator[str | None]:
        """The texts of the column, None for a missing one. Raises CorpusError for another kind of value."""
        names = getattr(self.data, "column_names", None)
        if isinstance(names, list):
            check_column(self.column, names, _CHOICE)
        for number, record in enumerate(self._read_records()):
            try:
                yield extract_text(record, self.column, _CHOICE)
            except BadLineError as error:
                raise CorpusError(f"record {number}: {error.reason}") from None

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
        else:
            if hasattr(data, "to_dict") and hasattr(data, "columns"):
                check_column(self.column, list(data.columns), _CHOICE)
                data = data[self.column]
            if hasattr(data, "notna"):  # of pandas, which has several signs for a missing value
                data = data.astype(object).where(data.notna(), None)
            yield from (
                dict(record) if isinstance(record, Mapping) else {self.column: record} for record in data
            )


def find_splits(
    data_sets: Mapping[str, Any], column: str = "text", content: Literal["lines", "prose"] = "lines"
) -> dict[str, DataSet]:
    """The sources of a mapping of splits, such as a `datasets.DatasetDict`; "validation" becomes "valid".

    Raises ArgumentError for no mapping, and CorpusError for one with other splits than train, validation and
    test, or with one under two names.
    """
    check_type("data_sets", data_sets, Mapping, "a mapping of splits, such as a datasets.DatasetDict")
    unknown = [name for name in data_sets if name not in _SPLIT_BY_NAME]
    if unknown:
        raise CorpusError(
            f"no split is called {', '.join(map(str, unknown))}; give train, validation and test"
        )
    if len({_SPLIT_BY_NAME[name] for name in data_sets}) < len(data_sets):
        raise CorpusError(f"a split has two names among {', '.join(data_sets)}; give one of them")
    return {_SPLIT_BY_NAME[name]: DataSet(data, column, content) for name, data in data_sets.items()}
