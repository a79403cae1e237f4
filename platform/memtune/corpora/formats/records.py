"""Records with the text in a named field: JSON Lines, CSV with a header, and Parquet and Arrow files.

A quoted field of CSV may hold line ends. Parquet and Arrow are read in batches of rows.
`Dataset.save_to_disk` of Hugging Face writes a folder with `state.json` and Arrow streams; the cache of
`datasets` holds such streams too.
"""

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memtune.corpora.formats.prose_texts import ProseOptions, make_prose_blocks, split_paragraphs
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import check_expansion
from memtune.corpora.text_blocks import (
    BadLineError,
    Block,
    Format,
    FormatOptions,
    group_texts,
    has_lone_surrogate,
    shorten,
    split_lines,
)
from memtune.errors import CorpusError
from memtune.number_format import format_count

WITHOUT_TEXT = "records without a text"
"""The reason under which records whose text is missing are counted."""

_BLOCK_CHARACTERS = 2**22
_SHOWN_NAMES = 10
_CHOICE = "--option column=NAME"
_MAX_TEXT_BYTES = 2**22
_MAX_PART_BYTES = 2**26
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


class RecordOptions(FormatOptions):
    """`column` names the field with the text. `content` is `lines`, one sentence per line of the text with
    words separated by whitespace, or `prose`, which is split into sentences and words. A list of words is one
    sentence.
    """

    column: str = "text"
    content: Literal["lines", "prose"] = "lines"


def extract_text(record: Any, column: str, choice: str = _CHOICE) -> str | None:
    """The text of a record, or None for a missing value. Raises BadLineError for anything else, and for a
    text with a NUL or a lone surrogate.

    `choice` is how another column is named.
    """
    if not isinstance(record, dict):
        raise BadLineError(f"{type(record).__name__} instead of an object with fields")
    if column not in record:
        raise BadLineError(_describe_missing_column(column, list(record), choice))
    value = record[column]
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if isinstance(value, str):
        return _check_text(value)
    if value is None:
        return None
    kind = "NaN" if isinstance(value, float) and math.isnan(value) else type(value).__name__
    kind = "an object" if isinstance(value, _Fields) else kind
    raise BadLineError(
        f'"{shorten(column)}" is {kind}, not a text or a list of words; leave out rows without a text'
    )


def check_column(column: str, names: list[Any], choice: str = _CHOICE) -> None:
    """Raise CorpusError unless exactly one of the columns has this name; `choice` is how one is named."""
    times = names.count(column)
    if not times:
        raise CorpusError(_describe_missing_column(column, names, choice))
    if times > 1:
        raise CorpusError(f'{times} columns are named "{shorten(column)}"; rename one')


def _describe_missing_column(column: str, names: list[Any], choice: str) -> str:
    """A message for a column that does not exist, with those that do."""
    shown = ", ".join(shorten(str(name)) for name in names[:_SHOWN_NAMES]) or "nothing"
    return f'no column "{shorten(column)}"; there is {shown}: choose one with {choice}'


def iterate_text_columns(column: pa.Array, name: str) -> Iterator[pa.Array]:
    """A column of texts or of lists of words as Arrow strings, in parts of at most 64 MiB.

    A small file may repeat one long text in many rows, so sizes are checked before texts are copied. Raises
    CorpusError, which calls the column `name`, for another type and for a text of more than 4 MiB.
    """
    is_list = isinstance(column, pa.ListArray | pa.LargeListArray)
    if is_list:
        leaf, offsets = column.values, column.offsets.to_numpy()
    else:
        leaf, offsets = column, np.arange(len(column) + 1)
    kind = leaf.type.value_type if pa.types.is_dictionary(leaf.type) else leaf.type
    if not any(is_text(kind) for is_text in _TEXT_TYPES):
        raise CorpusError(f'the column "{name}" holds {column.type}, not text; choose another: {_CHOICE}')
    ends = np.append(0, np.cumsum(_measure_bytes(leaf)))[offsets]
    if (longest := np.diff(ends).max(initial=0)) > _MAX_TEXT_BYTES:
        raise CorpusError(
            f'a text of the column "{name}" has {longest:,} bytes, more than {_MAX_TEXT_BYTES:,}; divide it'
        )
    start = 0
    while start < len(column):
        end = int(np.searchsorted(ends, ends[start] + _MAX_PART_BYTES, side="right")) - 1
        part = column.slice(start, end - start)
        yield pc.binary_join(part.cast(pa.list_(pa.string())), " ") if is_list else part.cast(pa.string())
        start = end


def _measure_bytes(leaf: pa.Array) -> npt.NDArray[np.int64]:
    """The bytes of each text; 0 for a missing one."""
    has_indices = pa.types.is_dictionary(leaf.type)
    texts = leaf.dictionary if has_indices else leaf
    views = pa.types.is_string_view(texts.type)  # whose bytes pyarrow does not count
    lengths = pc.binary_length(texts.cast(pa.large_string()) if views else texts)
    lengths = lengths.take(leaf.indices) if has_indices else lengths
    measured: npt.NDArray[np.int64] = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return measured


def make_record_blocks(texts: Iterable[str], options: RecordOptions, name: str) -> Iterator[Block]:
    """The sentences of texts without a NUL and lone surrogates; `name` is that of their source."""
    if options.content == "prose":
        paragraphs = (split_paragraphs(text.splitlines(), name) for text in texts)
        yield from make_prose_blocks(chain.from_iterable(paragraphs), ProseOptions())
        return
    for group in group_texts(texts, _BLOCK_CHARACTERS):
        array = pa.array(group, pa.string())
        for sign in ("\r\n", "\r"):
            array = pc.replace_substring(array, sign, "\n")
        lines = pc.split_pattern(array, "\n").flatten()
        blank = pc.or_(pc.utf8_is_space(lines), pc.equal(pc.binary_length(lines), 0))
        lines = lines.filter(pc.invert(blank))
        if len(lines):
            yield split_lines(lines)


def _check_text(text: str) -> str:
    """The text itself. Raises BadLineError for a NUL or a lone surrogate."""
    if "\0" in text:
        raise BadLineError(f"a NUL in {shorten(repr(text))}; remove it from the text")
    if has_lone_surrogate(text):
        raise BadLineError(f"a lone surrogate in {shorten(ascii(text))}; remove it from the text")
    return text


class _Fields(tuple[tuple[str, Any], ...]):
    """An object of JSON; a function that checks each one would take as long as the reading."""

    __slots__ = ()


_decode_fields = json.JSONDecoder(object_pairs_hook=_Fields).decode


def parse_json_line(line: str) -> Any:
    """The value of a line of JSON, objects within it as `_Fields`.

    Raises BadLineError, also for two fields of one name in the outermost object: json keeps the last.
    """
    try:
        value = _decode_fields(line)
    except RecursionError:  # json.loads recurses at each open bracket
        raise BadLineError("not JSON (brackets nested too deeply)") from None
    except ValueError as error:
        is_list = line.lstrip().startswith("[")
        advice = "; give each object a line of its own, without brackets and commas" if is_list else ""
        raise BadLineError(f"not JSON ({error}){advice}") from None
    if not isinstance(value, _Fields):
        return value
    found = dict(value)
    if len(found) < len(value):
        name = Counter(name for name, _ in value).most_common(1)[0][0]
        raise BadLineError(f'two fields named "{shorten(name)}" in one object; rename or remove one')
    return found


def _make_format(
    read_texts: Callable[[LineReader, Any], Iterator[str]],
    summary: str,
    options: type[RecordOptions] = RecordOptions,
) -> Format:
    def read(reader: LineReader, options: RecordOptions) -> Iterator[Block]:
        return make_record_blocks(read_texts(reader, options), options, reader.name)

    return Format(read, summary, options=options)


def _read_json(reader: LineReader, options: RecordOptions) -> Iterator[str]:
    for number, line in reader.read_full_lines():
        try:
            text = extract_text(parse_json_line(line), options.column)
        except BadLineError as error:
            reader.report_bad(number, error.reason)
            continue
        reader.count_good()
        if text is None:
            reader.count_skipped(WITHOUT_TEXT)
        else:
            yield text


JSON_LINES = _make_format(_read_json, "JSON Lines: one object per line, the text in one of its fields")

_MAX_FIELD_CHARACTERS = 2**22
_DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";"}


class CsvOptions(RecordOptions):
    """Those of records; `delimiter` is a character, or `tab`, `comma` or `semicolon`. With `quotes = "text"`
    a quotation mark is a sign like any other, as in most TSV; else it may open a field.
    """

    delimiter: str = ","
    quotes: Literal["fields", "text"] = "fields"


def _read_csv(reader: LineReader, options: CsvOptions) -> Iterator[str]:
    delimiter = _DELIMITERS.get(options.delimiter, options.delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n\0 ':
        raise CorpusError(f'the delimiter "{options.delimiter}" is not one character; write tab for a TAB')
    # The line ends stay: those within quotes are part of the text.
    lines = (line + "\n" for _, line in reader.read_lines())
    quoting: Literal[0, 3] = csv.QUOTE_NONE if options.quotes == "text" else csv.QUOTE_MINIMAL
    rows = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    # A longer field is an unclosed quote. The module's limit of 131,072 characters is less than a document.
    limit = csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    end = 0  # the last line of the rows read so far
    try:
        header = next(rows, [])
        with _translate_errors(f"{reader.name}: line 1"):
            others = [name for name, sign in _DELIMITERS.items() if sign in "".join(header)]
            single = len(header) == 1 and bool(others)
            choice = f"--option delimiter={others[0]}, if it divides them" if single else _CHOICE
            check_column(options.column, header, choice)
        place = header.index(options.column)
        end = rows.line_num
        for row in rows:
            line, end = end + 1, rows.line_num
            if not row or row == header:  # files that were joined repeat it
                continue
            if len(row) != len(header):
                found = format_count(len(row), "column")
                reader.report_bad(line, f"{found} instead of {len(header)} as in the header")
                continue
            reader.count_good()
            yield row[place]
    except csv.Error as error:
        raise CorpusError(
            f"{reader.name}: line {end + 1}: not CSV ({error}); where quotation marks are part of the text, "
            "give --option quotes=text"
        ) from None
    finally:
        csv.field_size_limit(limit)


CSV = _make_format(_read_csv, "CSV with a header, the text in one of its columns", CsvOptions)

_BATCH_ROWS = 1024
_BATCH_BYTES = 2**26
_ARROW_MAGIC = b"ARROW1"
_STATE_FILE, _SPLITS_FILE = "state.json", "dataset_dict.json"


def _read_arrow(reader: LineReader, options: RecordOptions) -> Iterator[Block]:
    files = map(reader.open_companion, _list_dataset_files(reader.path)) if reader.is_folder else [reader]
    for file in files:
        texts = _read_column(file, options.column, _open_arrow)
        yield from make_record_blocks(texts, options, file.name)


def _read_column(
    reader: LineReader, column: str, read: Callable[[IO[bytes], str], Iterator[pa.Array]]
) -> Iterator[str]:
    text_bytes, rows = 0, count(1)
    with closing(reader.open_binary()) as file, _translate_errors(reader.name):
        for values in read(file, column):
            for part in iterate_text_columns(values, column):
                # A text that is stored once may be that of any number of rows.
                text_bytes += part.nbytes
                check_expansion("the column", text_bytes, reader.bytes_read)
                for text, row in zip(part.to_pylist(), rows, strict=False):
                    if text is None:
                        reader.count_skipped(WITHOUT_TEXT)
                        continue
                    try:
                        yield _check_text(text)
                    except BadLineError as error:
                        raise CorpusError(f"row {row}: {error.reason}") from None


def _open_parquet(file: IO[bytes], column: str) -> Iterator[pa.Array]:
    metadata = pq.read_metadata(file)
    check_column(column, metadata.schema.to_arrow_schema().names)
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
    sizes = (
        sum(group.column(leaf).total_uncompressed_size for leaf in leaves) / max(group.num_rows, 1)
        for group in groups
    )
    longest = max(sizes, default=0)
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(longest, 1))))


def _open_arrow(file: IO[bytes], column: str) -> Iterator[pa.Array]:
    is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
    file.seek(0)
    open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
    schema = open_reader(file).schema
    check_column(column, schema.names)
    file.seek(0)
    chosen = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(column)], use_threads=False)
    reader: Any = open_reader(file, options=chosen)
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader:
        batch.validate(full=True)
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.column(0).slice(start, _BATCH_ROWS)


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    try:
        yield
    except CorpusError as error:
        raise CorpusError(f"{name}: {error}") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).splitlines()[:1])
        raise CorpusError(
            f"{name} is damaged or in another format ({reason}); write or fetch the file again, or see "
            "memtune corpus formats"
        ) from None


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
        state = json.loads((folder / _STATE_FILE).read_bytes())
        names = [Path(entry["filename"]) for entry in state["_data_files"]]
        is_plain = not state.get("_indices_data_files") and all(name.name == str(name) for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_plain = False
    if not is_plain or not names:
        raise CorpusError(
            f"{folder / _STATE_FILE} does not list the files of a data set, one after the other; save it "
            "again with Dataset.flatten_indices().save_to_disk(FOLDER)"
        )
    return [folder / name for name in names]


PARQUET = _make_format(
    lambda reader, options: _read_column(reader, options.column, _open_parquet),
    "Parquet, the text in one of its columns",
)
ARROW = Format(
    _read_arrow,
    "Arrow or Feather, and folders saved by Hugging Face datasets, the text in one of the columns",
    options=RecordOptions,
    reads_folders=True,
)
