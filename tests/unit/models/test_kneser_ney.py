"""Kneser-Ney against its definition in dictionaries, against cases counted by hand, and on Penn Treebank."""

import os
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from memtune.errors import ConfigurationError
from memtune.models.families.kneser_ney import ABSENT, KneserNey, KneserNeyConfig, sort_with_positions
from tests.oracles.kneser_ney import ReferenceKneserNey

VOCABULARY = 30
END = 0
Text = tuple[np.ndarray, np.ndarray]


def make_text(sentences: list[list[int]]) -> Text:
    lengths = [len(sentence) for sentence in sentences]
    return np.concatenate([np.array(s) for s in sentences]), np.cumsum([0, *lengths[:-1]])


def draw_sentences(seed: int, count: int) -> list[list[int]]:
    """Sentences in which words depend on the two before them, so that every count from 1 up occurs."""
    random = np.random.default_rng(seed)
    sentences = []
    for _ in range(count):
        words = [1, 2]
        while len(words) < random.integers(3, 15):
            words.append(1 + (words[-1] * 3 + words[-2] + int(random.zipf(1.7))) % (VOCABULARY - 3))
        sentences.append([*words[1:], END])
    return sentences


def compute_log_probabilities(model: KneserNey, text: list[int]) -> list[float]:
    """Log probability of every token of a text, read from its start."""
    inputs_BT, targets_BT = torch.tensor([[END, *text[:-1]]]), torch.tensor([text])
    log_BT, _ = model.log_probabilities(inputs_BT, targets_BT, model.initial_state(1))
    return log_BT[0].tolist()


def score_sentences(model: KneserNey, sentences: list[list[int]]) -> list[float]:
    """Log probability of every token, each sentence read as a separate text."""
    return [score for sentence in sentences for score in compute_log_probabilities(model, sentence)]


def predict_next_word(model: KneserNey, context: list[int]) -> np.ndarray:
    """Distribution over the word after `context`, which starts the text."""
    words = model.vocabulary_size
    inputs_BT = torch.tensor([[END, *context]]).expand(words, -1)
    targets_BT = inputs_BT.clone()
    targets_BT[:, -1] = torch.arange(words)
    log_BT, _ = model.log_probabilities(inputs_BT, targets_BT, model.initial_state(words))
    return log_BT[:, -1].exp().numpy()


TRAIN = draw_sentences(0, 300)
OTHER = [*draw_sentences(1, 40), [VOCABULARY - 1, END], [END]]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_agree_with_the_definition(order):
    model = KneserNeyConfig(order=order).fit(*make_text(TRAIN), VOCABULARY)
    expected = ReferenceKneserNey(TRAIN, order, VOCABULARY).compute_log_probabilities(OTHER)
    assert score_sentences(model, OTHER) == pytest.approx(expected, rel=1e-12)


def test_a_stream_is_one_long_sentence():
    joined, other = list(chain(*TRAIN)), list(chain(*OTHER))
    model = KneserNeyConfig(order=4).fit(*make_text([joined]), VOCABULARY)
    expected = ReferenceKneserNey([joined], 4, VOCABULARY).compute_log_probabilities([other])
    assert compute_log_probabilities(model, other) == pytest.approx(expected, rel=1e-12)


def test_a_sparse_text_uses_the_fixed_discounts():
    sentences = [[1, 2, END], [1, 3, END], [1, 2, 4, END]]
    model = KneserNeyConfig(order=3).fit(*make_text(sentences), 6)
    assert [order.discounts.tolist() for order in model.tables] == [[0.5, 1.0, 1.5]] * 3
    expected = ReferenceKneserNey(sentences, 3, 6).compute_log_probabilities(OTHER_SMALL)
    assert score_sentences(model, OTHER_SMALL) == pytest.approx(expected, rel=1e-12)


def make_sentences_with_unigram_counts(counts: list[int]) -> list[list[int]]:
    """One-word sentences in which word i + 1 occurs counts[i] times."""
    return [[word, END] for word, count in enumerate(counts, start=1) for _ in range(count)]


def fit_unigrams(counts: list[int]) -> KneserNey:
    sentences = make_sentences_with_unigram_counts(counts)
    return KneserNeyConfig(order=1).fit(*make_text(sentences), len(counts) + 1)


def test_without_ngrams_that_occur_four_times_the_third_discount_is_three():
    """n1 = 4, n2 = 2, n3 = 1, n4 = 0: Y = 4 / 8; D = 1 - 2 Y 2 / 4, 2 - 3 Y / 2, 3 (equation 26)."""
    model = fit_unigrams([1, 1, 1, 1, 2, 2, 3])
    assert model.tables[0].discounts.tolist() == [0.5, 1.25, 3.0]


@pytest.mark.parametrize(
    "counts",
    [[2, 3, 4], [1, 1, 1, 1, 3, 4], [1, 1, 1, 1, 2, 4]],
    ids=["no n1", "no n2", "no n3"],
)
def test_without_ngrams_that_occur_once_twice_or_three_times_the_discounts_are_fixed(counts):
    assert fit_unigrams(counts).tables[0].discounts.tolist() == [0.5, 1.0, 1.5]


def test_discounts_outside_their_range_are_replaced_by_the_fixed_ones():
    """n1 = 4, n2 = 1, n3 = 2: D(2) = 2 - 3 (4 / 6) 2 = -2 is negative."""
    assert fit_unigrams([1, 1, 1, 1, 2, 3, 3]).tables[0].discounts.tolist() == [0.5, 1.0, 1.5]


OTHER_SMALL = [[1, 2, 4, END], [5, 5, END], [3, END]]


def test_a_bigram_model_counted_by_hand():
    """Text "1 2 . 1 3 ." with V = 4: after the start always 1; 2 and 3 once each after 1."""
    model = KneserNeyConfig(order=2).fit(*make_text([[1, 2, END], [1, 3, END]]), 4)
    # Different words before: END 2 (2 and 3), 1 one (the start), 2 one, 3 one. D is 0.5, 1, 1.5.
    unigram = np.array([1.0, 0.5, 0.5, 0.5]) / 5 + (1.0 + 3 * 0.5) / 5 / 4
    assert predict_next_word(model, []) == pytest.approx([*(0.5 * unigram + [0, 0.5, 0, 0])])
    assert predict_next_word(model, [1]) == pytest.approx([*(0.5 * unigram + [0, 0, 0.25, 0.25])])
    assert predict_next_word(model, [1, END]) == pytest.approx([*unigram])


@pytest.mark.parametrize("order", [1, 2, 5])
def test_every_next_word_has_a_positive_probability_and_they_sum_to_one(order):
    model = KneserNeyConfig(order=order).fit(*make_text(TRAIN), VOCABULARY)
    unseen = VOCABULARY - 1
    for context in ([], [2], TRAIN[0][:3], TRAIN[1][:-1], [unseen], [unseen, 1], [5, 4, unseen, 3, 2, 1, 1]):
        distribution = predict_next_word(model, context)
        assert distribution.shape == (VOCABULARY,)
        assert distribution.min() > 0
        assert distribution.sum() == pytest.approx(1.0, rel=1e-12)


def test_a_text_that_does_not_begin_with_the_boundary_has_no_start_sign():
    """The first token is then an ordinary word with unknown context."""
    model = KneserNeyConfig(order=3).fit(*make_text(TRAIN), VOCABULARY)
    words_BT = torch.tensor([[2, 5]])
    log_BT, _ = model.log_probabilities(words_BT[:, :1], words_BT[:, 1:], model.initial_state(1))
    assert log_BT.item() == pytest.approx(np.log(predict_next_word(model, [VOCABULARY - 1, 2])[5]), rel=1e-12)


def test_all_words_have_the_same_probability_before_the_fit():
    model = KneserNeyConfig(order=3).build(VOCABULARY)
    assert score_sentences(model, OTHER) == pytest.approx([-np.log(VOCABULARY)] * sum(map(len, OTHER)))


@pytest.mark.parametrize("largest", [10**3, 2**62])
def test_keys_are_sorted_with_their_positions_even_if_both_do_not_fit_into_one_integer(largest):
    keys = np.random.default_rng(0).integers(0, 40, 500) * (largest // 40)
    keys[::7] = ABSENT
    expected = sorted(key for key in keys.tolist() if key != ABSENT)
    found, positions = sort_with_positions(keys.copy())
    assert found.tolist() == keys[positions].tolist() == expected
    assert len(set(positions.tolist())) == len(positions)


@pytest.mark.parametrize(
    ("tokens", "starts", "message"),
    [
        ([], [], "the text is empty"),
        ([1, 30], [0], "from 0 to 29, got 1 to 30"),
        ([1, -1], [0], "from 0 to 29, got -1 to 1"),
        ([1, 2], [1], "ascend from 0"),
        ([1, 2], [0, 0], "ascend from 0"),
        ([1, 2], [0, 2], "ascend from 0"),
        ([1, 2], [], "ascend from 0"),
    ],
)
def test_an_invalid_text_is_refused(tokens, starts, message):
    with pytest.raises(ConfigurationError, match=message):
        KneserNeyConfig().fit(np.array(tokens, dtype=int), np.array(starts, dtype=int), VOCABULARY)


@pytest.fixture(scope="module")
def penn_treebank() -> tuple[Text, Text, int]:
    """Train and test as token ids, and the size of the vocabulary."""
    default = Path(__file__).parents[3].parent / "shared" / "corpora"
    folder = Path(os.environ.get("MEMTUNE_TEST_CORPORA", default)) / "ptb"
    if not folder.is_dir():
        pytest.skip(f"no corpus ptb in {folder.parent}")
    numbers = {"<eos>": END}
    texts = []
    for split in ("train", "test"):
        lines = (folder / f"ptb.{split}.txt").read_text(encoding="utf-8").splitlines()
        texts.append(
            make_text([[numbers.setdefault(w, len(numbers)) for w in line.split()] + [END] for line in lines])
        )
    return texts[0], texts[1], len(numbers)


def test_penn_treebank_has_the_published_perplexity(penn_treebank: tuple[Text, Text, int]):
    """141.2 for 5-grams: Mikolov and Zweig (2012), Context Dependent RNN Language Model."""
    train, test, vocabulary_size = penn_treebank
    assert vocabulary_size == 10_000
    model = KneserNeyConfig(order=5).fit(*train, vocabulary_size)
    sentences = [sentence.tolist() for sentence in np.split(test[0], test[1][1:])]
    assert np.exp(-np.mean(score_sentences(model, sentences))) == pytest.approx(141.19, abs=0.005)
