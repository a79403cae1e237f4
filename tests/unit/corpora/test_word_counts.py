from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest

from memtune.corpora.importing.counted_text import SplitCounter, WordTable
from memtune.corpora.text_blocks import SENTENCE_END, Example, make_blocks

TEXT = [
    [["b", "a", "b"], ["c"]],
    [["a", "d"], [], ["b"]],
    [["e", "a", "a", "a"]],
]


@pytest.fixture
def table():
    return WordTable()


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def counter(table, stack):
    return SplitCounter(table, stack)


def add(counter, sentences):
    for block in make_blocks(Example((words,)) for words in sentences):
        counter.add(block)


def test_word_numbers_reproduce_the_text(table, counter):
    for sentences in TEXT:
        add(counter, sentences)
    words = [table.words[int(number)].as_py() for numbers, _ in counter.read_blocks() for number in numbers]
    assert words == [
        word for sentences in TEXT for sentence in sentences for word in (*sentence, SENTENCE_END)
    ]
    assert [lengths.tolist() for _, lengths in counter.read_blocks()] == [[4, 2], [3, 1, 2], [5]]


def test_counts_add_up_over_blocks(table, counter):
    for sentences in TEXT:
        add(counter, sentences)
    counted = dict(zip(table.words.to_pylist(), counter.counts.tolist(), strict=True))
    assert counted == {SENTENCE_END: 6, "a": 5, "b": 3, "c": 1, "d": 1, "e": 1}
    assert (counter.token_count, counter.sentence_count, counter.longest_sentence_tokens) == (17, 6, 5)


def test_splits_share_the_numbers_but_not_the_counts(table, counter, stack):
    add(counter, [["a", "b"]])
    other = SplitCounter(table, stack)
    add(other, [["b", "c"]])
    assert table.words.to_pylist() == [SENTENCE_END, "a", "b", "c"]
    assert counter.counts.tolist() == [1, 1, 1, 0]
    assert other.counts.tolist() == [1, 0, 1, 1]


def test_a_word_keeps_its_number(table):
    texts = (pa.array(["x", "y", "x"]), pa.array(["y", SENTENCE_END, "z"]).dictionary_encode())
    numbers = [table.number(words) for words in texts]
    assert [each.tolist() for each in numbers] == [[1, 2, 1], [2, 0, 3]]
    assert all(each.dtype == np.int32 for each in numbers)
