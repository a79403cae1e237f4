"""Training on a GPU: the curves of a CPU, resumed trials, low precision, compilation and memory."""

import gc
import json
from pathlib import Path

import pytest
import torch

from memtune.errors import TrialError
from memtune.training import (
    AnyTrainer,
    GradientTrainer,
    TrialConfig,
    estimate_memory,
    find_longest_row,
    read_checkpoint,
    restore_trainer,
)
from memtune.training.memory_footprint import CUDA_CONTEXT_BYTES, compute_gpu_bytes
from tests.golden.curves import STORED_CURVES_PATH, TRIAL_CONFIGS, compute_curve
from tests.golden.tiny_corpus import make_tiny_corpus
from tests.gpu.cuda import FAMILIES, make_family_trial, needs_cuda
from tests.presence import require

pytestmark = needs_cuda

EACH_FAMILY = pytest.mark.parametrize("family", FAMILIES)
CURVE_TOLERANCE = 1e-4
"""Of losses in nats after 2,000 tokens: a GPU sums in another order, and sums of atomic additions vary."""
LOW_PRECISION_TOLERANCE = 0.01
"""As for bfloat16 on a CPU."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_tiny_corpus(tmp_path_factory.mktemp("corpus"))


def train(config: TrialConfig, corpus, device: str = "cuda") -> GradientTrainer:
    trainer = GradientTrainer(config, corpus, device)
    while not trainer.is_finished:
        trainer.advance()
    return trainer


def list_losses(trainer: AnyTrainer) -> list[float]:
    return [require(report.valid_loss) for report in trainer.curve]


@pytest.mark.parametrize("name", TRIAL_CONFIGS)
def test_a_golden_curve_of_the_cpu_holds_on_a_gpu(corpus, name):
    stored = json.loads(STORED_CURVES_PATH.read_text())[name]
    curve = compute_curve(name, corpus, "cuda")
    for quantity, losses in stored.items():
        assert curve[quantity] == pytest.approx(losses, abs=CURVE_TOLERANCE)


@EACH_FAMILY
def test_a_trial_has_the_losses_of_the_cpu(corpus, family):
    config = make_family_trial(family)
    expected = list_losses(train(config, corpus, "cpu"))
    assert list_losses(train(config, corpus)) == pytest.approx(expected, abs=CURVE_TOLERANCE)


@EACH_FAMILY
def test_a_resumed_trial_continues_the_uninterrupted_one(corpus, family, tmp_path: Path):
    config = make_family_trial(family)
    undisturbed = train(config, corpus)
    trainer = GradientTrainer(config, corpus, "cuda")
    trainer.advance()
    trainer.save(tmp_path / "checkpoint")
    resumed = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus, "cuda")
    while not resumed.is_finished:
        resumed.advance()
    assert list_losses(resumed) == pytest.approx(list_losses(undisturbed), abs=CURVE_TOLERANCE)


@EACH_FAMILY
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_low_precision_reaches_the_loss_of_float32(corpus, family, precision):
    exact, low = (train(make_family_trial(family, precision=each), corpus) for each in ("float32", precision))
    assert all(parameter.dtype is torch.float32 for parameter in low.model.parameters())
    assert list_losses(low) != list_losses(exact), f"{precision} was not used"
    assert list_losses(low) == pytest.approx(list_losses(exact), rel=LOW_PRECISION_TOLERANCE)


@EACH_FAMILY
def test_a_compiled_trial_has_the_losses_of_the_plain_one(corpus, family):
    plain, compiled = (train(make_family_trial(family, compile=each), corpus) for each in (False, True))
    assert list_losses(compiled) == pytest.approx(list_losses(plain), abs=CURVE_TOLERANCE)


@EACH_FAMILY
def test_the_tensors_of_a_trial_fit_the_memory_that_packing_gives_it(corpus, family):
    """Too low an estimate ends trials that share a GPU."""
    config = make_family_trial(family, {"width": 512}, batch_size=64)
    gc.collect()
    held = torch.cuda.memory_allocated()
    trainer = train(config, corpus)
    length = find_longest_row(config.protocol, corpus["train"])
    given = compute_gpu_bytes(estimate_memory(config, len(corpus.vocabulary), length).total)
    assert trainer.curve[-1].peak_memory_bytes - held <= given - CUDA_CONTEXT_BYTES


def test_a_trial_without_enough_memory_names_a_batch_that_fits(corpus):
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(64 * 2**20 / total)
    try:
        with pytest.raises(TrialError, match=r"out of memory on cuda.* a batch size of \d+ would fit"):
            train(make_family_trial("lstm", {"width": 512, "layers": 3}, batch_size=512), corpus)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
