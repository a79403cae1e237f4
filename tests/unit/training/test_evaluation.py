"""Evaluation of a trained model."""

import pytest

from memtune.corpora.batching.protocols import SentenceProtocol, StreamProtocol
from memtune.errors import CheckpointError
from memtune.models import LSTMConfig, build_model
from memtune.training import GradientTrainer, evaluate, read_checkpoint
from tests.presence import require
from tests.unit.training.conftest import SENTENCE, STREAM


@pytest.mark.parametrize("protocol", [SENTENCE, STREAM], ids=lambda protocol: protocol["kind"])
def test_the_saved_best_model_reproduces_the_logged_perplexity(corpus, make_trial, tmp_path, protocol):
    config = make_trial(protocol=protocol, epochs=2)
    trainer = GradientTrainer(config, corpus)
    while not trainer.is_finished:
        trainer.advance()
    trainer.save(tmp_path / "checkpoint")
    best = read_checkpoint(tmp_path / "checkpoint").build_best_model()
    metrics = evaluate(best, corpus, config.protocol, "valid")
    assert metrics.perplexity == pytest.approx(require(trainer.best).valid_perplexity, rel=1e-6)


def test_protocols_and_splits_give_different_losses(corpus):
    model = build_model(LSTMConfig(width=8), len(corpus.vocabulary), seed=1)
    found = {
        evaluate(model, corpus, protocol, split).loss
        for protocol in (SentenceProtocol(), StreamProtocol())
        for split in ("valid", "test")
    }
    assert len(found) == 4


def test_a_model_of_another_vocabulary_is_refused(corpus):
    model = build_model(LSTMConfig(width=8), 7, seed=1)
    with pytest.raises(CheckpointError, match=r'has a vocabulary of 7 words, corpus "tiny" of'):
        evaluate(model, corpus, SentenceProtocol(), "valid")
