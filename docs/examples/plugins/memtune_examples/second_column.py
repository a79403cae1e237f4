"""A text format: the second column of a table with tabs, such as `id <tab> sentence <tab> source`."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.formats import Block, Format, LineReader, split_lines
from memtune.values import Value

__all__ = ["FORMAT"]


class SecondColumnOptions(Value):
    """`--option column=2` on the command line; columns count from 0."""

    column: int = 1


def _read(reader: LineReader, options: SecondColumnOptions) -> Iterator[Block]:
    for lines in reader.read_blocks():
        fields = pc.split_pattern(lines, "\t")
        is_good = pc.greater(pc.list_value_length(fields), options.column)
        reader.count_good(pc.sum(is_good).as_py())
        for index in np.flatnonzero(~is_good.to_numpy(zero_copy_only=False)):
            reader.report_bad(reader.line_number(int(index)), f"no column {options.column}")
        good = fields.filter(is_good)
        yield split_lines(pc.list_element(good, options.column).cast(pa.string()))


FORMAT = Format(_read, "one column of a table with tabs, one sentence per line", options=SecondColumnOptions)
