"""The contract of training, for every family of networks."""

from math import isfinite
from pathlib import Path

import pytest
import torch

from memtune.models import MODELS, NeuralLanguageModelConfig
from memtune.training import GradientTrainer, TrialConfig
from memtune.training.devices import has_bfloat16_instructions
from memtune.trial_state import StopReason
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.presence import require

NETWORKS = [family for family, config in MODELS.items() if issubclass(config, NeuralLanguageModelConfig)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory):
    return make_tiny_corpus(Path(tmp_path_factory.mktemp("corpus")))


@pytest.mark.parametrize("learning_rate", [1e-12, 1e12], ids=["tiny", "huge"])
@pytest.mark.parametrize("family", NETWORKS)
def test_a_trial_with_an_extreme_learning_rate_ends_with_figures_or_a_reason(corpus, family, learning_rate):
    training = {"optimiser": {"kind": "sgd", "learning_rate": learning_rate}, "clip_norm": None}
    config = TrialConfig.model_validate(
        {"model": {"family": family, "width": 6}, "training": training | {"tokens": 400, "report_every": 200}}
    )
    trainer = GradientTrainer(config, corpus)
    while not trainer.is_finished:
        trainer.advance()
    losses = [report.valid_loss for report in trainer.curve]
    reason = require(trainer.curve[-1].end).reason
    assert reason in (StopReason.BUDGET, StopReason.DIVERGED)
    assert all(loss is None or isfinite(loss) for loss in losses)
    assert reason is not StopReason.BUDGET or None not in losses


@pytest.mark.skipif(not has_bfloat16_instructions(), reason="this processor has no bfloat16 instructions")
@pytest.mark.parametrize("family", NETWORKS)
def test_training_in_bfloat16_reaches_the_loss_of_float32(corpus, family):
    losses = {}
    for precision in ("float32", "bfloat16"):
        # Adam's small steps: with large ones a rounded ReLU of fifteen residual layers changes the course.
        optimiser = {"kind": "adam", "learning_rate": 1e-3}
        training = {"tokens": 2000, "report_every": 1000, "precision": precision, "optimiser": optimiser}
        config = TrialConfig.model_validate({"model": {"family": family, "width": 8}, "training": training})
        trainer = GradientTrainer(config, corpus)
        while not trainer.is_finished:
            trainer.advance()
        losses[precision] = trainer.curve[-1].valid_loss
        assert all(parameter.dtype is torch.float32 for parameter in trainer.model.parameters())
    assert losses["bfloat16"] != losses["float32"], "bfloat16 was not used"
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.01)
