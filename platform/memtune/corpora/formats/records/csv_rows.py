"""CSV: rows with a header, the text in one of the columns; a quoted field may hold line ends."""

import csv
from collections.abc import Iterator

from memtune.corpora.blocks.record_texts import RecordOptions, describe_missing_column, make_record_blocks
from memtune.corpora.blocks.text_blocks import Block, Format
from memtune.corpora.sources.line_reader import LineReader
from memtune.errors import CorpusError

_MAX_FIELD_CHARACTERS = 2**22
_DELIMITERS = {"tab": "\t", "comma": ",", "semicolon": ";"}


class CsvOptions(RecordOptions):
    """Those of records; `delimiter` is a character, or `tab`, `comma` or `semicolon`."""

    delimiter: str = ","


def _read(reader: LineReader, options: CsvOptions) -> Iterator[Block]:
    delimiter = _DELIMITERS.get(options.delimiter, options.delimiter)
    if len(delimiter) != 1 or delimiter in '"\r\n\0 ':
        raise CorpusError(f'the delimiter "{options.delimiter}" is not one character; write tab for a TAB')
    return make_record_blocks(_read_texts(reader, options.column, delimiter), options, reader.name)


def _read_texts(reader: LineReader, column: str, delimiter: str) -> Iterator[str]:
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


FORMAT = Format(_read, "CSV with a header, the text in one of its columns", options=CsvOptions)
