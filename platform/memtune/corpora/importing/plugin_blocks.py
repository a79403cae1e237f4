"""Blocks of text formats that packages add: their errors name the package, and their blocks are checked."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memtune.corpora.blocks.text_blocks import SENTENCE_END, BadLineError, Block
from memtune.corpora.store.annotations import ANNOTATION_KINDS
from memtune.errors import MemtuneError, PluginError
from memtune.plugins import PluginSource
from memtune.plugins.source_modules import describe_error

__all__ = ["check_plugin_blocks"]


def check_plugin_blocks(
    read: Callable[[], Iterable[Block]], name: str, source: PluginSource
) -> Iterator[Block]:
    """The blocks that a package's format reads.

    Raises PluginError for an error of its code and for a block that is none: unchecked, its words would be
    counted wrongly.
    """
    blocks: Iterator[Block] | None = None
    while True:
        try:
            with redirect_stdout(sys.stderr):  # what it prints is not part of a command's output
                blocks = iter(read()) if blocks is None else blocks
                block = next(blocks)
        except StopIteration:
            return
        except (MemtuneError, BadLineError):
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f'{source}: the text format "{name}" fails: {describe_error(error)}') from error
        if problem := _find_problem(block):
            raise PluginError(f'{source}: the text format "{name}" yields {problem}')
        yield block


def _find_problem(block: object) -> str | None:
    """What is wrong with a block; None for one that follows the interface."""
    if not isinstance(block, Block):
        return f"{type(block).__name__} instead of a Block"
    if not isinstance(block.words, pa.Array) or not pa.types.is_string(block.words.type):
        return "words that are not an Arrow array of strings"
    if block.words.null_count:
        return "words that are null"
    lengths = block.lengths
    if not isinstance(lengths, np.ndarray) or lengths.dtype != np.int32 or lengths.ndim != 1:
        return "lengths of sentences that are not an array of int32"
    if (lengths < 1).any():
        return "lengths of sentences below 1"
    ends = np.cumsum(lengths, dtype=np.int64) - 1
    if (ends[-1] + 1 if len(ends) else 0) != len(block.words):
        return f"{len(block.words)} words for sentences of {lengths.sum()} words"
    is_end = pc.equal(block.words, SENTENCE_END).to_numpy(zero_copy_only=False)
    if not np.array_equal(np.flatnonzero(is_end), ends):
        return "sentences that do not end in SENTENCE_END, or have it between their words"
    if unknown := set(block.annotations) - set(ANNOTATION_KINDS):
        return f"annotations of unknown kinds: {', '.join(sorted(map(str, unknown)))}"
    return next(filter(None, map(_find_table_problem, block.annotations.items())), None)


def _find_table_problem(annotation: tuple[str, object]) -> str | None:
    kind, rows = annotation
    schema = ANNOTATION_KINDS[kind].input_schema
    if isinstance(rows, pa.RecordBatch) and rows.schema.equals(schema):
        return None
    return f'annotations "{kind}" that are not a RecordBatch with the columns {", ".join(schema.names)}'
