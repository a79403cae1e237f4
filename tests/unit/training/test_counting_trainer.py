"""The trainer of n-gram models: one report, checkpoints, and contexts by protocol."""

import pytest

from memtune.corpora.batching.protocols import SentenceProtocol
from memtune.errors import CheckpointError, ConfigurationError
from memtune.models.families.kneser_ney import KneserNeyConfig
from memtune.training import (
    GradientTrainer,
    TrialConfig,
    create_trainer,
    evaluate,
    read_checkpoint,
    restore_trainer,
)
from memtune.training.trainers import CountingTrainer
from memtune.trial_state import StopReason, TrialEnd
from memtune.values import parse
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.unit.training.conftest import SENTENCE, STREAM


def make_counting_trial(protocol=SENTENCE, order=3) -> TrialConfig:
    model = {"family": "kneser_ney", "order": order}
    return parse(TrialConfig, {"model": model, "protocol": protocol}, "trial")


def test_the_family_determines_the_trainer(corpus, make_trial):
    assert isinstance(create_trainer(make_counting_trial(), corpus), CountingTrainer)
    assert isinstance(create_trainer(make_trial(), corpus), GradientTrainer)


def test_one_report_counts_every_token_and_ends_the_trial(corpus):
    trainer = create_trainer(make_counting_trial(), corpus)
    report = trainer.advance()
    assert (report.tokens, report.epoch) == (corpus["train"].token_count, 1.0)
    assert report.is_finished
    assert report.end == TrialEnd(reason=StopReason.BUDGET)
    assert trainer.advance() is report
    assert (trainer.curve, trainer.best, trainer.tokens) == ([report], report, report.tokens)


@pytest.mark.parametrize("protocol", [SENTENCE, STREAM], ids=["sentence", "stream"])
def test_contexts_start_where_the_protocol_starts_a_text(corpus, protocol):
    trainer = create_trainer(make_counting_trial(protocol), corpus)
    train = corpus["train"]
    starts = train.starts if protocol is SENTENCE else train.starts[:1]
    model = KneserNeyConfig(order=3).fit(
        train.read_tokens(0, train.token_count), starts, len(corpus.vocabulary)
    )
    expected = evaluate(model, corpus, trainer.config.protocol, "valid")
    assert trainer.advance().valid_loss == pytest.approx(expected.loss, rel=1e-12)


def test_a_filtered_protocol_counts_only_what_it_keeps(corpus):
    protocol = SentenceProtocol(variant="tran2016", batch_size=3, min_length=4, max_length=9)
    report = create_trainer(make_counting_trial(protocol.model_dump()), corpus).advance()
    assert (
        report.tokens == protocol.evaluation_plan(corpus["train"]).token_count < corpus["train"].token_count
    )


@pytest.mark.parametrize("reports", [0, 1])
def test_a_restored_trial_continues_like_the_original(corpus, tmp_path, reports):
    trainer = create_trainer(make_counting_trial(), corpus)
    for _ in range(reports):
        trainer.advance()
    trainer.save(tmp_path / "saved")
    restored = restore_trainer(read_checkpoint(tmp_path / "saved"), corpus)
    assert restored.curve == trainer.curve
    assert restored.is_finished == bool(reports)
    assert restored.advance().valid_loss == trainer.advance().valid_loss
    assert restored.best == restored.curve[0]


def test_the_best_model_has_the_reported_loss(corpus, tmp_path):
    trainer = create_trainer(make_counting_trial(), corpus)
    report = trainer.advance()
    trainer.save(tmp_path / "saved")
    checkpoint = read_checkpoint(tmp_path / "saved")
    assert not checkpoint.model_weights  # the tables are kept once
    found = evaluate(
        read_checkpoint(tmp_path / "saved").build_best_model(), corpus, trainer.config.protocol, "valid"
    )
    assert found.loss == report.valid_loss


def test_another_corpus_is_refused(corpus, tmp_path):
    trainer = create_trainer(make_counting_trial(), corpus)
    trainer.save(tmp_path / "saved")
    other = make_tiny_corpus(tmp_path, train=20)
    with pytest.raises(CheckpointError, match="was trained on corpus"):
        restore_trainer(read_checkpoint(tmp_path / "saved"), other)


def test_an_n_gram_model_refuses_a_training_table_and_a_network_needs_one():
    counted = {"model": {"family": "kneser_ney"}}
    with pytest.raises(ConfigurationError, match=r'"kneser_ney" counts; leave \[training\] out'):
        parse(TrialConfig, {**counted, "training": {"epochs": 1}}, "trial")
    with pytest.raises(ConfigurationError, match='training is missing; family = "lstm" needs a budget'):
        parse(TrialConfig, {"model": {"family": "lstm"}}, "trial")
