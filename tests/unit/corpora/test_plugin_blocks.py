"""Blocks of a package's text format: what is accepted, and the message for everything else."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from memtune.corpora.text_blocks import SENTENCE_END, BadLineError, Block, check_plugin_blocks
from memtune.errors import PluginError
from memtune.plugins import PluginSource

SOURCE = PluginSource(name="columns 1.0", module="columns", files={"columns.py": ""})
OTHER_LENGTHS = "sentences of other lengths than those from one SENTENCE_END to the next"
WORDS = ["a", "cat", SENTENCE_END, SENTENCE_END]


def make_block(words: Any = WORDS, lengths: Any = (3, 1), annotations: Any = None) -> Block:
    return Block(pa.array(words), np.array(lengths, np.int32), annotations or {})


def check(*blocks: Any) -> list[Block]:
    return list(check_plugin_blocks(lambda: iter(blocks), "second_column", SOURCE))


def test_blocks_that_follow_the_interface_are_passed_on() -> None:
    blocks = [make_block(), make_block(["b", SENTENCE_END], [2]), make_block(pa.array([], pa.string()), [])]
    assert check(*blocks) == blocks


@pytest.mark.parametrize(
    ("block", "named"),
    [
        (None, "NoneType instead of a Block"),
        (make_block([1, 2, 3, 4]), "words that are not an Arrow array of strings"),
        (make_block(["a", None, SENTENCE_END, SENTENCE_END]), "an Arrow array of strings without nulls"),
        (Block(pa.array(WORDS), np.array([3, 1])), "not an array of int32"),
        (make_block(lengths=[5, -1]), OTHER_LENGTHS),
        (make_block(lengths=[3, 2]), OTHER_LENGTHS),
        (make_block(lengths=[2, 2]), OTHER_LENGTHS),
        (make_block(lengths=[4]), OTHER_LENGTHS),
        (make_block(["a", SENTENCE_END, "b"], [2]), OTHER_LENGTHS),
        (make_block(annotations={"colours": None}), "annotations of unknown kinds: colours"),
        (
            make_block(annotations={"sentiment": pa.record_batch({"label": ["a"]})}),
            'annotations "sentiment" that',
        ),
    ],
)
def test_another_block_names_the_package_and_the_problem(block: Any, named: str) -> None:
    with pytest.raises(PluginError, match=rf'columns 1.0 .*"second_column" yields .*{named}'):
        check(make_block(), block)


@pytest.mark.parametrize("error", [KeyError("column"), SystemExit(3)])
def test_an_error_of_the_format_names_the_package(error: BaseException) -> None:
    def read() -> Iterator[Block]:
        yield make_block()
        raise error

    with pytest.raises(PluginError, match=r'columns 1.0 .*"second_column" fails: (KeyError|SystemExit): '):
        list(check_plugin_blocks(read, "second_column", SOURCE))


def test_a_line_that_breaks_the_format_keeps_its_error() -> None:
    def read() -> Iterator[Block]:
        raise BadLineError("a line has no column 2")

    with pytest.raises(BadLineError):
        list(check_plugin_blocks(read, "second_column", SOURCE))
