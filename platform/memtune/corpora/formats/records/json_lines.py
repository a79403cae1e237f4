"""JSON Lines: one JSON object per line, with the text in one of its fields."""

import json
from collections.abc import Iterator
from typing import Any

from memtune.corpora.blocks.record_texts import RecordOptions, extract_text, make_record_blocks
from memtune.corpora.blocks.text_blocks import BadLineError, Block, Format
from memtune.corpora.sources.line_reader import LineReader


def parse_json_line(line: str) -> Any:
    """The value of a line of JSON. Raises BadLineError."""
    try:
        return json.loads(line)
    except RecursionError:  # json.loads recurses at each open bracket
        raise BadLineError("not JSON (brackets nested too deeply)") from None
    except ValueError as error:
        raise BadLineError(f"not JSON ({error})") from None


def _read(reader: LineReader, options: RecordOptions) -> Iterator[Block]:
    return make_record_blocks(_read_texts(reader, options.column), options, reader.name)


def _read_texts(reader: LineReader, column: str) -> Iterator[str]:
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


FORMAT = Format(
    _read, "JSON Lines: one object per line, the text in one of its fields", options=RecordOptions
)
