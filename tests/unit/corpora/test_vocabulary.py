import numpy as np
import pyarrow as pa
import pytest

from memtune.corpora import Vocabulary
from memtune.errors import CorpusError


@pytest.fixture
def vocabulary():
    return Vocabulary(["<eos>", "<unk>", "the", "cat"], [3, 1, 7, 2])


def test_an_id_is_the_index_of_its_token(vocabulary):
    assert [vocabulary.get_id(token) for token in vocabulary.tokens] == [0, 1, 2, 3]


def test_unknown_words_become_unk(vocabulary):
    assert vocabulary.encode(["the", "dog", "cat"]).tolist() == [2, 1, 3]


def test_without_unk_an_unknown_word_is_refused():
    with pytest.raises(CorpusError, match='"dog" is not among the 2 tokens'):
        Vocabulary(["<eos>", "the"], [1, 1]).get_id("dog")


def test_decoding_reverses_encoding(vocabulary):
    assert vocabulary.decode(np.array([2, 3, 0])) == ["the", "cat", "<eos>"]


def test_a_vocabulary_has_a_size_and_contains_its_tokens(vocabulary):
    assert "cat" in vocabulary
    assert "dog" not in vocabulary
    assert len(vocabulary) == 4


def test_the_digest_changes_with_the_order_of_tokens(vocabulary):
    other = Vocabulary(["<eos>", "<unk>", "cat", "the"], [3, 1, 7, 2])
    assert vocabulary.digest != other.digest


def test_columns_of_another_array_are_not_copied(vocabulary):
    before = pa.total_allocated_bytes()
    sliced = Vocabulary(vocabulary.batch.column("token"), vocabulary.batch.column("count"))
    assert pa.total_allocated_bytes() == before
    assert sliced.tokens == vocabulary.tokens
