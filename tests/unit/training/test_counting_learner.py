"""A trial that counts: one report, the same model from its checkpoint, contexts as the protocol says."""

import pytest

from memtune.corpora.protocols import SentenceProtocol
from memtune.errors import CheckpointError, ConfigurationError
from memtune.models import KneserNeyConfig
from memtune.training import (
    Learner,
    TrialConfig,
    evaluate,
    load_best_model,
    new_learner,
    read_checkpoint,
    restore_learner,
)
from memtune.training.counting_learner import CountingLearner
from memtune.values import parse
from tests.golden.tiny_corpus import tiny_corpus
from tests.unit.training.conftest import SENTENCE, STREAM


def trial(protocol=SENTENCE, order=3) -> TrialConfig:
    model = {"family": "kneser_ney", "order": order}
    return parse(TrialConfig, {"model": model, "protocol": protocol}, "trial")


def test_the_family_chooses_the_learner(corpus, make_trial):
    assert isinstance(new_learner(trial(), corpus), CountingLearner)
    assert isinstance(new_learner(make_trial(), corpus), Learner)


def test_one_report_counts_every_token_and_ends_the_trial(corpus):
    learner = new_learner(trial(), corpus)
    report = learner.advance()
    assert (report.tokens, report.epoch) == (corpus["train"].token_count, 1.0)
    assert report.finished
    assert report.reason == "budget"
    assert learner.advance() is report
    assert (learner.curve, learner.best, learner.tokens) == ([report], report, report.tokens)


@pytest.mark.parametrize("protocol", [SENTENCE, STREAM], ids=["sentence", "stream"])
def test_contexts_begin_anew_where_the_protocol_says(corpus, protocol):
    learner = new_learner(trial(protocol), corpus)
    train = corpus["train"]
    starts = train.starts if protocol is SENTENCE else train.starts[:1]
    model = KneserNeyConfig(order=3).fit(train.tokens(0, train.token_count), starts, len(corpus.vocabulary))
    expected = evaluate(model, corpus, learner.config.protocol, "valid")
    assert learner.advance().valid_loss == pytest.approx(expected.loss, rel=1e-12)


def test_a_filtered_protocol_counts_only_what_it_keeps(corpus):
    protocol = SentenceProtocol(variant="tran2016", batch_size=3, min_length=4, max_length=9)
    report = new_learner(trial(protocol.model_dump()), corpus).advance()
    assert (
        report.tokens == protocol.evaluation_plan(corpus["train"]).token_count < corpus["train"].token_count
    )


@pytest.mark.parametrize("reports", [0, 1])
def test_a_checkpoint_goes_on_as_the_trial_was(corpus, tmp_path, reports):
    learner = new_learner(trial(), corpus)
    for _ in range(reports):
        learner.advance()
    learner.save(tmp_path / "saved")
    again = restore_learner(tmp_path / "saved", corpus)
    assert again.curve == learner.curve
    assert again.finished == bool(reports)
    assert again.advance().valid_loss == learner.advance().valid_loss
    assert again.best == again.curve[0]


def test_the_best_model_gives_the_reported_figure(corpus, tmp_path):
    learner = new_learner(trial(), corpus)
    report = learner.advance()
    learner.save(tmp_path / "saved")
    checkpoint = read_checkpoint(tmp_path / "saved")
    assert not checkpoint.model  # the tables are kept once
    found = evaluate(load_best_model(tmp_path / "saved"), corpus, learner.config.protocol, "valid")
    assert found.loss == report.valid_loss


def test_another_corpus_is_refused(corpus, tmp_path):
    learner = new_learner(trial(), corpus)
    learner.save(tmp_path / "saved")
    other = tiny_corpus(tmp_path, train=20)
    with pytest.raises(CheckpointError, match="was trained on corpus"):
        restore_learner(tmp_path / "saved", other)


def test_what_counts_takes_no_training_and_a_network_needs_one():
    counted = {"model": {"family": "kneser_ney"}}
    with pytest.raises(ConfigurationError, match=r'"kneser_ney" counts; leave \[training\] out'):
        parse(TrialConfig, {**counted, "training": {"epochs": 1}}, "trial")
    with pytest.raises(ConfigurationError, match='training is missing; family = "lstm" needs a budget'):
        parse(TrialConfig, {"model": {"family": "lstm"}}, "trial")
