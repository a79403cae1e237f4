"""Records with the text in a named field: JSON Lines, one object a line, and CSV with a header.

A quoted field of CSV may hold line ends.
"""

import csv
import json
from collections.abc import Iterator
from typing import Any

from memtune.corpora.blocks.record_texts import (
    RecordOptions,
    describe_missing_column,
    extract_text,
    make_record_blocks,
)
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format
from memtune.corpora.sources.line_reader import LineReader
from memtune.errors import CorpusError


def parse_json_line(line: str) -> Any:
    """The value of a line of JSON. Raises BadLineError."""
    try:
        return json.loads(line)
    except RecursionError:  # json.loads recurses at each open bracket
        raise BadLineError("not JSON (brackets nested too deeply)") from None
    except ValueError as error:
        raise BadLineError(f"not JSON ({error})") from None


def _read_json(reader: LineReader, options: RecordOptions) -> Iterator[Block]:
    return make_record_blocks(_read_json_texts(reader, options.column), options, reader.name)


def _read_json_texts(reader: LineReader, column: str) -> Iterator[str]:
    for number, line in reader.read_lines():
        if not line.strip():
            continue
        try:
            text = extract_text(parse_json_line(line), column)
        except BadLineError as error:
            reader.report_bad(number, error.reason)
            continue
        reader.count_good()
        if text is None:
            reader.count_skipped("records without a text")
        else:
            yield text


JSON_LINES = Format(
    _read_json, "JSON Lines: one object per line, the text in one of its fields", options=RecordOptions
)


_MAX_FIELD_CHARACTERS = 2**22
_DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";"}


class CsvOptions(RecordOptions):
    """Those of records; `delimiter` is a character, or `tab`, `comma` or `semicolon`."""

    delimiter: str = ","


def _read_csv(reader: LineReader, options: CsvOptions) -> Iterator[Block]:
    delimiter = _DELIMITERS.get(options.delimiter, options.delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n\0 ':
        raise CorpusError(f'the delimiter "{options.delimiter}" is not one character; write tab for a TAB')
    return make_record_blocks(_read_csv_texts(reader, options.column, delimiter), options, reader.name)


def _read_csv_texts(reader: LineReader, column: str, delimiter: str) -> Iterator[str]:
    # The line ends stay: those within quotes are part of the text.
    lines = (line + "\n" for _, line in reader.read_lines())
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    # A longer field is an unclosed quote. The module's limit of 131,072 characters is less than a document.
    limit = csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    try:
        header = next(rows, [])
        if column not in header:
            raise CorpusError(f"{reader.name}: line 1: {describe_missing_column(column, header)}")
        place = header.index(column)
        for row in rows:
            if not row or row == header:  # files that were joined repeat it
                continue
            if len(row) != len(header):
                reader.report_bad(
                    rows.line_num, f"{len(row)} columns instead of {len(header)} as in the header"
                )
                continue
            reader.count_good()
            yield row[place]
    except csv.Error as error:
        raise CorpusError(f"{reader.name}: line {rows.line_num}: not CSV ({error})") from None
    finally:
        csv.field_size_limit(limit)


CSV = Format(_read_csv, "CSV with a header, the text in one of its columns", options=CsvOptions)
