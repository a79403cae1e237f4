"""The contract of every protocol: each token once, and plans that are functions of their arguments."""

from pathlib import Path

import numpy as np
import pytest
import torch

from memtune.corpora import Corpus, Split
from memtune.corpora.batching.protocols import Batch, Plan, SentenceProtocol, StreamProtocol
from tests.golden.tiny_corpus import make_tiny_corpus

PROTOCOLS = [
    SentenceProtocol(batch_size=1),
    SentenceProtocol(batch_size=7),
    SentenceProtocol(batch_size=4, variant="tran2016", min_length=3, max_length=9),
    StreamProtocol(batch_size=1, length=35),
    StreamProtocol(batch_size=6, length=5),
    StreamProtocol(batch_size=20, length=1000),
    StreamProtocol(batch_size=6, length=14, random_lengths=True),
    StreamProtocol(batch_size=1, length=1, random_lengths=True),
    StreamProtocol(batch_size=9, length=4, shuffled_windows=True),
]
COMPLETE = [protocol for protocol in PROTOCOLS if getattr(protocol, "variant", "complete") == "complete"]


def _format_fields(protocol: SentenceProtocol | StreamProtocol) -> str:
    return "-".join(str(value) for value in protocol.model_dump().values())


each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=_format_fields)
each_complete_protocol = pytest.mark.parametrize("protocol", COMPLETE, ids=_format_fields)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_tiny_corpus(Path(tmp_path_factory.mktemp("corpus")))


def _make_plans(protocol, split: Split) -> list[Plan]:
    return [protocol.training_plan(split, 3, 1), protocol.evaluation_plan(split), protocol.text_plan(split)]


def _list_batches(plan: Plan) -> list[Batch]:
    return [plan.batch(index) for index in range(len(plan))]


def _collect_counted_tokens(plan: Plan) -> np.ndarray:
    parts = []
    for batch in _list_batches(plan):
        targets_BT = batch.targets_BT
        parts.append(targets_BT.flatten() if batch.mask_BT is None else targets_BT[batch.mask_BT])
    return torch.cat(parts).numpy()


@each_complete_protocol
@pytest.mark.parametrize("split", ["train", "valid"])
def test_every_token_of_a_split_is_predicted_once(corpus, protocol, split):
    expected = np.bincount(corpus[split].read_tokens(0, corpus[split].token_count))
    for plan in _make_plans(protocol, corpus[split]):
        np.testing.assert_array_equal(np.bincount(_collect_counted_tokens(plan)), expected)


@each_protocol
def test_the_counts_of_plan_and_batches_agree(corpus, protocol):
    for plan in _make_plans(protocol, corpus["train"]):
        assert (
            plan.token_count
            == len(_collect_counted_tokens(plan))
            == sum(batch.token_count for batch in _list_batches(plan))
        )


@each_protocol
def test_a_target_is_the_input_of_the_next_column(corpus, protocol):
    for plan in _make_plans(protocol, corpus["train"]):
        for batch in _list_batches(plan):
            assert torch.equal(batch.inputs_BT[:, 1:], batch.targets_BT[:, :-1])


@each_protocol
def test_a_text_without_carried_state_starts_after_a_boundary(corpus, protocol):
    plan = protocol.evaluation_plan(corpus["valid"])
    for batch in _list_batches(plan):
        if not batch.carries_state:
            assert (batch.inputs_BT[:, 0] == 0).all()


@each_protocol
def test_the_same_seed_and_epoch_give_the_same_batches_in_any_order(corpus, protocol):
    first, again = (protocol.training_plan(corpus["train"], 5, 2) for _ in range(2))
    for index in reversed(range(len(first))):
        assert torch.equal(first.batch(index).targets_BT, again.batch(index).targets_BT)


@each_protocol
def test_no_training_batch_has_more_rows_than_the_batch_size(corpus, protocol):
    rows = [len(batch.inputs_BT) for batch in _list_batches(protocol.training_plan(corpus["train"], 0, 0))]
    assert max(rows) == protocol.batch_size


@each_protocol
def test_an_epoch_has_the_same_tokens_in_every_epoch(corpus, protocol):
    counts = {protocol.training_plan(corpus["train"], 0, epoch).token_count for epoch in range(3)}
    assert len(counts) == 1


@each_complete_protocol
def test_an_evaluation_does_not_depend_on_the_batch_size(corpus, protocol):
    other = protocol.model_copy(update={"batch_size": protocol.batch_size + 3})
    plan, same = (each.evaluation_plan(corpus["valid"]) for each in (protocol, other))
    assert plan.token_count == same.token_count
    assert torch.equal(plan.batch(0).targets_BT, same.batch(0).targets_BT)


@each_complete_protocol
def test_a_text_plan_predicts_the_text_in_order(corpus, protocol):
    text = corpus["train"].read_tokens(0, corpus["train"].token_count)
    np.testing.assert_array_equal(_collect_counted_tokens(protocol.text_plan(corpus["train"])), text)


@each_protocol
def test_a_text_plan_predicts_what_an_evaluation_does(corpus, protocol):
    found, expected = (
        np.bincount(_collect_counted_tokens(plan))
        for plan in (protocol.text_plan(corpus["train"]), protocol.evaluation_plan(corpus["train"]))
    )
    np.testing.assert_array_equal(found, expected)
