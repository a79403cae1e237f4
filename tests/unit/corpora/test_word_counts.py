import numpy as np
import pyarrow as pa
import pytest

from memtune.corpora.importing.counted_text import SplitCounter, WordTable
from memtune.corpora.text_blocks import SENTENCE_END, make_sentence_blocks

TEXT = [
    [["b", "a", "b"], ["c"]],
    [["a", "d"], [], ["b"]],
    [["e", "a", "a", "a"]],
]


@pytest.fixture
def table():
    return WordTable()


@pytest.fixture
def counter(table):
    counter = SplitCounter(table)
    yield counter
    counter.close()


def add(counter, sentences):
    for block in make_sentence_blocks(sentences):
        counter.add(block)


@pytest.mark.parametrize("merged_after", [{0, 1, 2}, {1, 2}, {2}], ids=str)
def test_word_numbers_reproduce_the_text_for_any_merge_threshold(table, counter, merged_after):
    for index, sentences in enumerate(TEXT):
        add(counter, sentences)
        if index in merged_after:
            counter.merge()
    words = [table.words[int(number)].as_py() for numbers, _ in counter.read_blocks() for number in numbers]
    assert words == [
        word for sentences in TEXT for sentence in sentences for word in (*sentence, SENTENCE_END)
    ]
    assert [lengths.tolist() for _, lengths in counter.read_blocks()] == [[4, 2], [3, 1, 2], [5]]


@pytest.mark.parametrize("merged_after", [{0, 1, 2}, {1, 2}, {2}], ids=str)
def test_counts_add_up_over_blocks(table, counter, merged_after):
    for index, sentences in enumerate(TEXT):
        add(counter, sentences)
        if index in merged_after:
            counter.merge()
    counted = dict(zip(table.words.to_pylist(), counter.counts.tolist(), strict=True))
    assert counted == {SENTENCE_END: 6, "a": 5, "b": 3, "c": 1, "d": 1, "e": 1}
    assert (counter.token_count, counter.sentence_count, counter.longest_sentence_tokens) == (17, 6, 5)


def test_splits_share_the_numbers_but_not_the_counts(table, counter):
    add(counter, [["a", "b"]])
    counter.merge()
    other = SplitCounter(table)
    add(other, [["b", "c"]])
    other.merge()
    assert table.words.to_pylist() == [SENTENCE_END, "a", "b", "c"]
    assert counter.counts.tolist() == [1, 1, 1, 0]
    assert other.counts.tolist() == [1, 0, 1, 1]
    other.close()


def test_a_large_group_of_blocks_is_merged_automatically(table, counter, monkeypatch):
    monkeypatch.setattr("memtune.corpora.importing.counted_text._MERGE_THRESHOLD_BYTES", 0)
    add(counter, [["a"]])
    assert len(table) == 2


def test_merging_gives_every_dictionary_its_own_numbers(table):
    maps = table.merge([pa.array(["x", "y"]), pa.array(["y", SENTENCE_END, "z"]), pa.array(["x"])])
    assert [numbers.tolist() for numbers in maps] == [[1, 2], [2, 0, 3], [1]]
    assert all(numbers.dtype == np.int32 for numbers in maps)
