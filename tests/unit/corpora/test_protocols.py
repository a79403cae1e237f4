"""Properties of single protocols; tests/contracts has those of all."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from memtune.corpora import Corpus, ImportOptions, import_corpus, open_corpus
from memtune.corpora.batching.protocols import Protocol, SentenceProtocol, StreamProtocol
from memtune.errors import ConfigurationError
from memtune.values import parse
from tests.golden.tiny_corpus import generate_sentences
from tests.presence import require


def _make_corpus(folder: Path, train: list[list[str]]) -> Corpus:
    short = [["a", "b"], ["a"]]
    splits = {"train": train, "valid": short, "test": short}
    import_corpus("small", splits, folder / "store", ImportOptions(shard_tokens=50))
    return open_corpus("small", folder / "store", folder / "cache")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return _make_corpus(tmp_path_factory.mktemp("corpus"), generate_sentences(200, 1))


def _list_rows(plan) -> list[tuple[int, ...]]:
    return [tuple(row) for index in range(len(plan)) for row in plan.batch(index).targets_BT.tolist()]


def _list_sentences(split) -> list[tuple[int, ...]]:
    ends = split.starts + split.lengths
    return [tuple(split.read_tokens(a, b).tolist()) for a, b in zip(split.starts, ends, strict=True)]


def test_sentence_batches_hold_each_whole_sentence_once(corpus):
    plan = SentenceProtocol(batch_size=8).training_plan(corpus["train"], 0, 0)
    assert Counter(_list_rows(plan)) == Counter(_list_sentences(corpus["train"]))


def test_sentence_inputs_are_the_boundary_and_the_words(corpus):
    batch = SentenceProtocol(batch_size=8).training_plan(corpus["train"], 0, 0).batch(0)
    assert (batch.inputs_BT[:, 0] == 0).all()
    assert (batch.targets_BT[:, -1] == 0).all()


def test_epochs_and_seeds_change_the_order_and_the_content_of_batches(corpus):
    protocol = SentenceProtocol(batch_size=8)
    orders = [_list_rows(protocol.training_plan(corpus["train"], *at)) for at in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(order) for order in orders}) == 3
    groups = [
        {frozenset(map(tuple, plan.batch(index).targets_BT.tolist())) for index in range(len(plan))}
        for plan in (protocol.training_plan(corpus["train"], 0, epoch) for epoch in (0, 1))
    ]
    assert groups[0] != groups[1]


def test_batches_of_different_lengths_are_mixed(corpus):
    plan = SentenceProtocol(batch_size=8).training_plan(corpus["train"], 0, 0)
    lengths = [plan.batch(index).targets_BT.shape[1] for index in range(len(plan))]
    assert lengths != sorted(lengths)


def test_the_sentences_of_a_length_are_divided_into_even_batches(tmp_path):
    corpus = _make_corpus(tmp_path, [["a", "b"]] * 21)
    plan = SentenceProtocol(batch_size=20).training_plan(corpus["train"], 0, 0)
    assert sorted(len(plan.batch(index).inputs_BT) for index in range(len(plan))) == [10, 11]


def test_tran2016_keeps_full_batches_of_lengths_within_bounds(corpus):
    protocol = SentenceProtocol(batch_size=6, variant="tran2016", min_length=4, max_length=9)
    counts = Counter(corpus["train"].lengths.tolist())
    expected = {length: counts[length] // 6 * 6 for length in range(4, 10)}
    for plan in (
        protocol.training_plan(corpus["train"], 0, 0),
        protocol.evaluation_plan(corpus["train"]),
    ):
        assert Counter(len(row) for row in _list_rows(plan)) == expected


def test_tran2016_drops_other_sentences_in_another_epoch_but_the_same_in_every_evaluation(corpus):
    protocol = SentenceProtocol(batch_size=6, variant="tran2016", min_length=4, max_length=9)
    kept = [set(_list_rows(protocol.training_plan(corpus["train"], 0, epoch))) for epoch in (0, 1)]
    assert kept[0] != kept[1]
    evaluated = [protocol.evaluation_plan(corpus["train"], size) for size in (50, 5000)]
    assert Counter(_list_rows(evaluated[0])) == Counter(_list_rows(evaluated[1]))


def test_tran2016_without_any_sentence_is_refused_with_a_fix(corpus):
    protocol = SentenceProtocol(batch_size=500, variant="tran2016")
    with pytest.raises(ConfigurationError, match=r'500 sentences in "train".*smaller batch_size'):
        protocol.training_plan(corpus["train"], 0, 0)


def test_length_bounds_are_refused_without_tran2016():
    with pytest.raises(ConfigurationError, match='only variant = "tran2016" has a min_length'):
        parse(Protocol, {"kind": "sentence", "max_length": 40}, "study.toml")


def test_reversed_length_bounds_are_refused():
    data = {"kind": "sentence", "variant": "tran2016", "min_length": 30, "max_length": 20}
    with pytest.raises(ConfigurationError, match="min_length must not be over max_length, got 30 and 20"):
        parse(Protocol, data, "study.toml")


@pytest.mark.parametrize("rows", [1, 3, 4, 7])
def test_stream_rows_are_contiguous_and_differ_by_at_most_one_token(corpus, rows):
    split = corpus["train"]
    plan = StreamProtocol(batch_size=rows, length=11).training_plan(split, 0, 0)
    read: list[list[int]] = [[] for _ in range(rows)]
    for index in range(len(plan)):
        batch = plan.batch(index)
        mask_BT = (
            torch.ones_like(batch.targets_BT, dtype=torch.bool) if batch.mask_BT is None else batch.mask_BT
        )
        for row, targets_T, mask_T in zip(read, batch.targets_BT, mask_BT, strict=True):
            row += targets_T[mask_T].tolist()
    assert [token for row in read for token in row] == split.read_tokens(0, split.token_count).tolist()
    assert max(map(len, read)) - min(map(len, read)) <= 1


def test_a_stream_row_starts_after_the_token_before_it(corpus):
    split = corpus["train"]
    batch = StreamProtocol(batch_size=3, length=11).training_plan(split, 0, 0).batch(0)
    longer = split.token_count % 3
    starts = np.cumsum([0] + [split.token_count // 3 + (row < longer) for row in range(2)])
    assert batch.inputs_BT[:, 0].tolist() == [0, *(int(split.read_tokens(a - 1, a)[0]) for a in starts[1:])]


def test_only_the_first_batch_of_a_stream_starts_from_a_zero_state(corpus):
    plan = StreamProtocol(batch_size=4, length=7).training_plan(corpus["train"], 0, 0)
    assert [plan.batch(index).carries_state for index in range(len(plan))] == [False] + [True] * (
        len(plan) - 1
    )


def test_a_stream_is_evaluated_as_one_row(corpus):
    split = corpus["train"]
    plan = StreamProtocol(batch_size=4, length=7).evaluation_plan(split)
    assert {len(plan.batch(index).inputs_BT) for index in range(len(plan))} == {1}
    assert [token for row in _list_rows(plan) for token in row] == split.read_tokens(
        0, split.token_count
    ).tolist()


def test_a_stream_shorter_than_its_rows_is_still_read_once(tmp_path):
    corpus = _make_corpus(tmp_path, [["a", "b"]])
    batch = StreamProtocol(batch_size=5, length=7).training_plan(corpus["train"], 0, 0).batch(0)
    assert batch.token_count == 3
    assert batch.targets_BT[batch.mask_BT].tolist() == corpus["train"].read_tokens(0, 3).tolist()


def _list_lengths(plan) -> list[int]:
    return [plan.batch(index).targets_BT.shape[1] for index in range(len(plan))]


@pytest.fixture(scope="module")
def long_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """One row of some 65,000 tokens, so that random lengths show their distribution."""
    return _make_corpus(tmp_path_factory.mktemp("long"), generate_sentences(10_000, 4))


def test_random_lengths_are_around_the_length_or_around_half_of_it(long_corpus):
    protocol = StreamProtocol(batch_size=1, length=70, random_lengths=True)
    lengths = np.array(_list_lengths(protocol.training_plan(long_corpus["train"], 0, 0))[:-1])
    halves = lengths < 52  # 3.5 deviations from either mean
    assert 700 < len(lengths) < 1300
    assert halves.mean() == pytest.approx(0.05, abs=0.03)  # a deviation of 0.007
    assert lengths[~halves].mean() == pytest.approx(69.5, abs=1)  # whole tokens are cut off: 0.5 less
    assert lengths[~halves].std() == pytest.approx(5, abs=0.6)
    assert lengths[halves].mean() == pytest.approx(34.5, abs=3)
    assert lengths.max() <= protocol.count_longest_row(longest_sentence=1)


def test_random_lengths_are_at_least_five(long_corpus):
    protocol = StreamProtocol(batch_size=20, length=6, random_lengths=True)
    lengths = _list_lengths(protocol.training_plan(long_corpus["train"], 0, 0))[:-1]
    assert min(lengths) == 5
    assert max(lengths) > 6


def test_random_lengths_differ_between_epochs_and_seeds(long_corpus):
    protocol = StreamProtocol(batch_size=20, length=30, random_lengths=True)
    plans = [protocol.training_plan(long_corpus["train"], *at) for at in [(0, 0), (0, 1), (1, 0), (0, 0)]]
    first, epoch, seed, again = map(_list_lengths, plans)
    assert first == again
    assert len({tuple(first), tuple(epoch), tuple(seed)}) == 3


def test_a_batch_of_random_length_scales_the_learning_rate_by_it(corpus):
    protocol = StreamProtocol(batch_size=3, length=20, random_lengths=True)
    plan = protocol.training_plan(corpus["train"], 0, 0)
    for batch in map(plan.batch, range(len(plan))):
        assert batch.learning_rate_scale == batch.targets_BT.shape[1] / 20


def test_fixed_lengths_do_not_scale_the_learning_rate_even_in_a_shorter_last_batch(corpus):
    plan = StreamProtocol(batch_size=3, length=20).training_plan(corpus["train"], 0, 0)
    assert _list_lengths(plan)[-1] < 20
    assert {plan.batch(index).learning_rate_scale for index in range(len(plan))} == {1.0}


def test_an_evaluation_of_a_stream_has_no_random_lengths(corpus):
    fixed, random = (
        StreamProtocol(random_lengths=on).evaluation_plan(corpus["train"]) for on in (False, True)
    )
    assert _list_lengths(fixed) == _list_lengths(random)


def test_a_shuffled_window_holds_the_words_before_the_one_it_predicts(corpus):
    split, length = corpus["train"], 4
    plan = StreamProtocol(batch_size=8, length=length, shuffled_windows=True).training_plan(split, 0, 0)
    text = split.read_tokens(0, split.token_count).tolist()
    windows = Counter(
        tuple(([0] * (length + 1) + text)[end : end + length + 1]) for end in range(1, len(text) + 1)
    )
    found: Counter[tuple[int, ...]] = Counter()
    for index in range(len(plan)):
        batch = plan.batch(index)
        assert not batch.carries_state
        assert require(batch.mask_BT).tolist() == [[False] * (length - 1) + [True]] * len(batch.targets_BT)
        rows = torch.cat([batch.inputs_BT, batch.targets_BT[:, -1:]], dim=1)
        found.update(tuple(row) for row in rows.tolist())
    assert found == windows


def test_windows_are_shuffled_in_every_epoch_and_evaluated_as_one_stream(corpus):
    protocol = StreamProtocol(batch_size=8, length=4, shuffled_windows=True)
    first, second = (protocol.training_plan(corpus["train"], 0, epoch).batch(0) for epoch in (0, 1))
    assert not torch.equal(first.targets_BT, second.targets_BT)
    assert len(protocol.evaluation_plan(corpus["valid"]).batch(0).targets_BT) == 1


def test_windows_have_no_random_lengths():
    with pytest.raises(ConfigurationError, match="keep one of them"):
        parse(StreamProtocol, {"random_lengths": True, "shuffled_windows": True}, "protocol")


def test_batch_size_does_not_change_the_label():
    assert StreamProtocol(batch_size=5, length=7).label == StreamProtocol().label
    assert SentenceProtocol(batch_size=5).label == SentenceProtocol().label != StreamProtocol().label


def test_a_lossy_variant_has_its_own_label():
    lossy = SentenceProtocol(variant="tran2016")
    assert lossy.label != SentenceProtocol().label
    assert lossy.label != SentenceProtocol(variant="tran2016", batch_size=10).label
