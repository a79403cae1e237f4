"""Parquet and Arrow files, the text in one of the columns; also what `datasets` of Hugging Face saves.

`Dataset.save_to_disk` writes a folder with `state.json` and Arrow streams; the cache of `datasets` holds such
streams too. A file is read in batches of rows.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from memtune.corpora.blocks.record_texts import (
    RecordOptions,
    describe_missing_column,
    iterate_text_columns,
    make_record_blocks,
)
from memtune.corpora.blocks.text_blocks import Block, Format
from memtune.corpora.sources.file_signatures import check_expansion
from memtune.corpora.sources.line_reader import LineReader
from memtune.errors import CorpusError

_BATCH_ROWS = 1024
_BATCH_BYTES = 2**26
_PARQUET_MAGIC, _ARROW_MAGIC, _STREAM_MAGIC = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
_STATE_FILE, _SPLITS_FILE = "state.json", "dataset_dict.json"
_MAX_STATE_BYTES = 2**24


def _read_parquet(reader: LineReader, options: RecordOptions) -> Iterator[Block]:
    return make_record_blocks(_read_texts(reader, options.column, _open_parquet), options, reader.name)


def _read_arrow(reader: LineReader, options: RecordOptions) -> Iterator[Block]:
    if not reader.is_folder:
        yield from make_record_blocks(_read_texts(reader, options.column, _open_arrow), options, reader.name)
        return
    for path in _list_dataset_files(reader.path):
        companion = reader.open_companion(path)
        texts = _read_texts(companion, options.column, _open_arrow)
        yield from make_record_blocks(texts, options, companion.name)


def _read_texts(
    reader: LineReader, column: str, read: Callable[[IO[bytes], str], Iterator[pa.Array]]
) -> Iterator[str]:
    text_bytes = 0
    with closing(reader.open_binary()) as file, _translate_errors(reader.name):
        for values in read(file, column):
            for part in iterate_text_columns(values, column):
                # A text that is stored once may be that of any number of rows.
                text_bytes += part.nbytes
                check_expansion("the column", text_bytes, reader.bytes_read)
                for text in part.to_pylist():
                    if text is None:
                        reader.count_skipped("records without a text")
                    else:
                        yield text


def _open_parquet(file: IO[bytes], column: str) -> Iterator[pa.Array]:
    _require_magic(file, (_PARQUET_MAGIC,), "a Parquet file")
    metadata = pq.read_metadata(file)
    _require_column(column, metadata.schema.to_arrow_schema())
    leaves = [metadata.schema.column(index).path for index in range(len(metadata.schema))]
    chosen = [index for index, path in enumerate(leaves) if path.split(".")[0] == column]
    rows = _choose_batch_rows(metadata, chosen)
    # Texts that the file stores once stay stored once in memory.
    repeated = [leaves[index] for index in chosen]
    with pq.ParquetFile(file, metadata=metadata, pre_buffer=False, read_dictionary=repeated) as table:
        for batch in table.iter_batches(rows, columns=[column], use_threads=False):
            yield batch.column(column)


def _choose_batch_rows(metadata: pq.FileMetaData, leaves: list[int]) -> int:
    """Rows of about 64 MiB, by the row group whose rows are the longest."""
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    longest = max(
        (
            sum(group.column(leaf).total_uncompressed_size for leaf in leaves) / max(group.num_rows, 1)
            for group in groups
        ),
        default=0,
    )
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(longest, 1))))


def _open_arrow(file: IO[bytes], column: str) -> Iterator[pa.Array]:
    magic = _require_magic(file, (_ARROW_MAGIC, _STREAM_MAGIC), "an Arrow file or stream")
    open_reader = pa.ipc.open_file if magic == _ARROW_MAGIC else pa.ipc.open_stream
    schema = open_reader(file).schema
    _require_column(column, schema)
    file.seek(0)
    chosen = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(column)], use_threads=False)
    reader = open_reader(file, options=chosen)
    for batch in _iterate_batches(reader):
        batch.validate(full=True)
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.column(0).slice(start, _BATCH_ROWS)


def _iterate_batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        return (reader.get_batch(index) for index in range(reader.num_record_batches))
    return iter(reader)


def _require_magic(file: IO[bytes], expected: tuple[bytes, ...], kind: str) -> bytes:
    start = file.read(max(map(len, expected)))
    file.seek(0)
    found = next((magic for magic in expected if start.startswith(magic)), None)
    if found is None:
        raise CorpusError(f"not {kind} (it starts with {start!r}); other formats: memtune corpus formats")
    return found


def _require_column(column: str, schema: pa.Schema) -> None:
    if schema.names.count(column) != 1:
        raise CorpusError(describe_missing_column(column, schema.names))


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    try:
        yield
    except CorpusError as error:
        raise CorpusError(f"{name}: {error}") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).splitlines()[:1])
        raise CorpusError(f"{name} is damaged ({reason}); write or fetch the file again") from None


def _list_dataset_files(folder: Path) -> list[Path]:
    """The files of a data set that `Dataset.save_to_disk` wrote, in their order, or all *.arrow files."""
    if (folder / _SPLITS_FILE).is_file():
        raise CorpusError(
            f"{folder} holds several splits; name each: --train {folder}/train --valid {folder}/validation "
            f"--test {folder}/test"
        )
    if not (folder / _STATE_FILE).is_file():
        files = sorted(path for path in folder.iterdir() if path.suffix == ".arrow")
        if not files:
            raise CorpusError(f"{folder} has neither {_STATE_FILE} nor *.arrow files")
        return files
    try:
        with (folder / _STATE_FILE).open("rb") as file:
            state = json.loads(file.read(_MAX_STATE_BYTES))
        names = [entry["filename"] for entry in state["_data_files"]]
        has_indices = bool(state.get("_indices_data_files"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorpusError(f"{folder / _STATE_FILE} does not list the files of a data set") from None
    if (
        not names
        or has_indices
        or not all(isinstance(name, str) and Path(name).name == name for name in names)
    ):
        raise CorpusError(
            f"{folder / _STATE_FILE} lists files in a way that this memtune does not read; save the data set "
            "again with Dataset.flatten_indices().save_to_disk(FOLDER)"
        )
    return [folder / name for name in names]


PARQUET = Format(_read_parquet, "Parquet, the text in one of its columns", options=RecordOptions)
ARROW = Format(
    _read_arrow,
    "Arrow or Feather, and folders saved by Hugging Face datasets, the text in one of the columns",
    options=RecordOptions,
    reads_folders=True,
)
