"""A text format: the second column of a table with tabs, such as `id <tab> sentence <tab> source`."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.formats import BadLineError, Block, Format, LineReader, split_lines
from memtune.values import Value

__all__ = ["FORMAT"]


class SecondColumnOptions(Value):
    """`--option column=2` on the command line; columns count from 0."""

    column: int = 1


def _read(reader: LineReader, options: SecondColumnOptions) -> Iterator[Block]:
    for lines in reader.read_blocks():
        fields = pc.split_pattern(lines, "\t")
        if pc.min(pc.list_value_length(fields)).as_py() <= options.column:
            raise BadLineError(f"a line has no column {options.column}")
        yield split_lines(pc.list_element(fields, options.column).cast(pa.string()))


FORMAT = Format(_read, "one column of a table with tabs, one sentence per line", options=SecondColumnOptions)
