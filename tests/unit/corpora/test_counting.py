import numpy as np
import pyarrow as pa
import pytest

from memtune.corpora.counting import SplitCounter, WordTable
from memtune.corpora.examples import sentence_blocks
from memtune.corpora.sources import END

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
    for block in sentence_blocks(sentences):
        counter.add(block)


@pytest.mark.parametrize("merged_after", [{0, 1, 2}, {1, 2}, {2}], ids=str)
def test_the_text_comes_back_by_number_however_it_is_merged(table, counter, merged_after):
    for index, sentences in enumerate(TEXT):
        add(counter, sentences)
        if index in merged_after:
            counter.merge()
    words = [
        table.words[int(number)].as_py() for codes, map_, _ in counter.blocks() for number in map_[codes]
    ]
    assert words == [word for sentences in TEXT for sentence in sentences for word in (*sentence, END)]
    assert [lengths.tolist() for _, _, lengths in counter.blocks()] == [[4, 2], [3, 1, 2], [5]]


@pytest.mark.parametrize("merged_after", [{0, 1, 2}, {1, 2}, {2}], ids=str)
def test_counts_add_up_over_blocks(table, counter, merged_after):
    for index, sentences in enumerate(TEXT):
        add(counter, sentences)
        if index in merged_after:
            counter.merge()
    counted = dict(zip(table.words.to_pylist(), counter.counts.tolist(), strict=True))
    assert counted == {END: 6, "a": 5, "b": 3, "c": 1, "d": 1, "e": 1}
    assert (counter.tokens, counter.sentences, counter.longest) == (17, 6, 5)


def test_splits_share_the_numbers_but_not_the_counts(table, counter):
    add(counter, [["a", "b"]])
    counter.merge()
    other = SplitCounter(table)
    add(other, [["b", "c"]])
    other.merge()
    assert table.words.to_pylist() == [END, "a", "b", "c"]
    assert counter.counts.tolist() == [1, 1, 1, 0]
    assert other.counts.tolist() == [1, 0, 1, 1]
    other.close()


def test_a_large_group_of_blocks_is_merged_by_itself(table, counter, monkeypatch):
    monkeypatch.setattr("memtune.corpora.counting._GROUP_BYTES", 0)
    add(counter, [["a"]])
    assert len(table) == 2


def test_merging_gives_every_dictionary_its_own_numbers(table):
    maps = table.merge([pa.array(["x", "y"]), pa.array(["y", END, "z"]), pa.array(["x"])])
    assert [numbers.tolist() for numbers in maps] == [[1, 2], [2, 0, 3], [1]]
    assert all(numbers.dtype == np.int32 for numbers in maps)
