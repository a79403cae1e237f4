"""Parquet and Arrow files: texts of any layout, and small files that hold very long texts."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from memtune.corpora import TextFile, import_corpus
from memtune.corpora.formats.records import iterate_text_columns
from memtune.errors import CorpusError
from memtune.settings import Settings

LONG = "b " * 2**20
"""A text of 2 MiB, half of the longest that is read."""


def write_parquet(path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"text": column}), path, compression="zstd")


def write_arrow(path: Path, column: pa.Array) -> None:
    table = pa.table({"text": column})
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with (
        pa.OSFile(str(path), "wb") as file,
        pyarrow.ipc.new_file(file, table.schema, options=options) as writer,
    ):
        writer.write_table(table)


def read_parts(column: pa.Array) -> Iterator[list[str | None]]:
    return (part.to_pylist() for part in iterate_text_columns(column, "text"))


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a b", None, "c"]),
        pa.array(["a b", None, "c"], pa.large_string()),
        pa.array(["a b", None, "c"], pa.string_view()),
        pa.array(["a b", None, "c"]).dictionary_encode(),
        pa.array([["a", "b"], None, ["c"]]),
        pa.array([["a", "b"], None, ["c"]], pa.large_list(pa.string())),
        pa.array([["x"], ["a", "b"], None, ["c"]]).slice(1),
        pa.ListArray.from_arrays([0, None, 2, 3], pa.array(["a", "b", "c"]).dictionary_encode()),
    ],
    ids=["text", "large", "view", "dictionary", "words", "large list", "slice", "list of a dictionary"],
)
def test_texts_of_every_layout_are_read_alike(column: pa.Array) -> None:
    assert [text for part in read_parts(column) for text in part] == ["a b", None, "c"]


def test_a_text_that_many_rows_repeat_is_copied_in_parts() -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array([LONG]))
    parts = [len(part) for part in read_parts(repeated)]
    assert sum(parts) == 100
    assert max(parts) == 32


@pytest.mark.parametrize("write", [write_parquet, write_arrow])
@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_text_above_the_limit_is_refused(
    write: object, is_repeated: bool, tmp_path: Path, settings: Settings
) -> None:
    texts = pa.array([LONG * 3])
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), texts) if is_repeated else texts
    path = tmp_path / "texts"
    write(path, column)  # type: ignore[operator]
    kind = "parquet" if write is write_parquet else "arrow"
    with pytest.raises(
        CorpusError, match='a text of the column "text" has 6,291,456 bytes, more than 4,194,304'
    ):
        import_corpus(
            "long", dict.fromkeys(("train", "valid", "test"), TextFile(path, kind)), settings.corpus_store
        )


def test_a_column_of_numbers_is_refused_with_its_type() -> None:
    with pytest.raises(CorpusError, match='"text" holds int64, not text'):
        list(read_parts(pa.array([1, 2])))


@pytest.mark.parametrize("write", [write_parquet, write_arrow])
def test_a_small_file_whose_rows_repeat_a_text_without_measure_is_refused(
    write: object, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtune.corpora.sources.source_file._FREE_BYTES", 2**22)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["a b " * 2**16]))
    path = tmp_path / "texts"
    write(path, column)  # type: ignore[operator]
    kind = "parquet" if write is write_parquet else "arrow"
    sources = dict.fromkeys(("train", "valid", "test"), TextFile(path, kind))
    with pytest.raises(CorpusError, match=f"{path}: .* bytes expand to more than .* the limit is 200 times"):
        import_corpus("long", sources, settings.corpus_store)
