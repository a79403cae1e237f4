"""A resumed trial ends with the same bits as an uninterrupted one."""

import functools
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import memtune
from memtune.corpora import Corpus
from memtune.training import AnyTrainer, GradientTrainer, create_trainer, read_checkpoint, restore_trainer
from memtune.training.optimisation.matmul_backend import select_backend, store_backend
from memtune.training.optimisation.optimisers import NTASGDConfig
from tests.presence import require
from tests.unit.training.conftest import LSTM, MEMORY, SENTENCE, STREAM

SGD = {"kind": "sgd", "learning_rate": 1.0}
MOMENTUM = {"kind": "sgd", "learning_rate": 0.1, "momentum": 0.9}
ADAM = {"kind": "adam", "learning_rate": 0.01}
ADAMW = {"kind": "adamw", "learning_rate": 0.01}
RMSPROP = {"kind": "rmsprop", "learning_rate": 0.003, "momentum": 0.1}
PLATEAU = {"kind": "plateau", "factor": 0.5}
INVERSE = {"kind": "inverse", "decay": 0.01}
WITHIN = LSTM | {"recurrent_dropout": 0.1, "variational_dropout": 0.2, "zoneout_cell": 0.2}
CONSTANT = {"kind": "constant"}
AVERAGED = {"kind": "nt_asgd", "learning_rate": 2.0, "weight_decay": 1e-6, "interval": 1}
RANDOM_LENGTHS = STREAM | {"random_lengths": True}
AWD = {"family": "awd_lstm", "embedding_width": 8, "width": 12, "layers": 2}
CASES: list[tuple[dict[str, Any], ...]] = [
    (LSTM, SENTENCE, SGD, PLATEAU),
    (LSTM, STREAM, ADAM, INVERSE),
    (MEMORY, STREAM, SGD, PLATEAU),
    (MEMORY, SENTENCE, ADAM, INVERSE),
    (LSTM, STREAM, MOMENTUM, INVERSE),
    (MEMORY, STREAM, RMSPROP, INVERSE),
    (LSTM, SENTENCE, ADAMW, PLATEAU),
    (WITHIN, STREAM, SGD, PLATEAU),
    (LSTM, STREAM, SGD | {"learning_rate": 0.5}, CONSTANT, {"ema_decay": 0.9, "accumulated_batches": 3}),
    (LSTM, STREAM, {"kind": "muon"}, INVERSE, {"ema_decay": 0.9}),
    (AWD, RANDOM_LENGTHS, AVERAGED, CONSTANT),
]
each_case = pytest.mark.parametrize(
    "number",
    range(len(CASES)),
    ids=["-".join(str(part.get("family", part.get("kind", "fields"))) for part in case) for case in CASES],
)
REPORTS = 5
TIMES = {"seconds", "tokens_per_second", "peak_memory_bytes", "cpu_seconds", "gpu_seconds"}


def _make_trial(make_trial, case):
    """A trial of an epoch and a half whose reports are not at the ends of epochs."""
    model, protocol, optimiser, schedule, *fields = case
    training = dict(*fields, optimiser=optimiser, schedule=schedule, tokens=3400, report_every=700)
    return make_trial(model, protocol, **training)


def _read_curve(trainer: AnyTrainer) -> list[dict[str, Any]]:
    return [report.model_dump(exclude=TIMES) for report in trainer.curve]


def _run_to_end(trainer: AnyTrainer) -> AnyTrainer:
    while not trainer.is_finished:
        trainer.advance()
    return trainer


def _assert_same(resumed: AnyTrainer, whole: AnyTrainer, folder: Path) -> None:
    assert _read_curve(resumed) == _read_curve(whole)
    assert require(resumed.best).tokens == require(whole.best).tokens
    weights = resumed.model.state_dict()
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(weights[name], tensor), name
    for trainer, name in ((resumed, "resumed"), (whole, "whole")):
        trainer.save(folder / name)
    for file in ("model.safetensors", "best.safetensors", "learner.safetensors"):
        assert (folder / "resumed" / file).read_bytes() == (folder / "whole" / file).read_bytes()


@pytest.fixture(scope="module")
def train_whole(corpus, make_trial) -> Callable[[int], AnyTrainer]:
    """Trains a case without an interruption, once for all tests."""

    @functools.cache
    def train(number: int) -> AnyTrainer:
        return _run_to_end(GradientTrainer(_make_trial(make_trial, CASES[number]), corpus))

    return train


def _save_and_restore(trainer: AnyTrainer, corpus: Corpus, folder: Path) -> AnyTrainer:
    trainer.save(folder / "checkpoint")
    return restore_trainer(read_checkpoint(folder / "checkpoint"), corpus)


@each_case
def test_a_trial_resumed_before_and_after_every_report_ends_with_the_same_bits(
    corpus, make_trial, train_whole, tmp_path, number
):
    resumed = create_trainer(_make_trial(make_trial, CASES[number]), corpus)
    for reports in range(REPORTS):
        resumed = _save_and_restore(resumed, corpus, tmp_path)
        assert len(resumed.curve) == reports
        resumed.advance()
    assert _save_and_restore(resumed, corpus, tmp_path).is_finished
    _assert_same(resumed, train_whole(number), tmp_path)


def test_the_nt_asgd_case_starts_to_average_before_its_last_report(train_whole):
    trainer = train_whole(len(CASES) - 1)
    losses = [require(report.valid_loss) for report in trainer.curve]
    optimiser = require(trainer.config.training).optimiser
    assert isinstance(optimiser, NTASGDConfig)
    assert optimiser.should_average(losses[:-1])


@each_case
def test_a_trial_resumed_between_any_two_steps_ends_with_the_same_bits(
    corpus, make_trial, train_whole, tmp_path, number
):
    resumed = create_trainer(_make_trial(make_trial, CASES[number]), corpus)
    pauses = 0
    while not resumed.is_finished:
        while not resumed.train_for(0.0):
            pauses += 1
            if pauses % 3 == 0:
                resumed = _save_and_restore(resumed, corpus, tmp_path)
        resumed.advance()
    assert pauses > 3 * REPORTS
    _assert_same(resumed, train_whole(number), tmp_path)


def test_a_trial_resumed_between_a_milestone_and_its_report_ends_with_the_same_bits(
    corpus, make_trial, tmp_path
):
    """With one report per epoch: the next epoch has begun before the report of this one."""
    config = make_trial(LSTM, STREAM, epochs=2)
    resumed = create_trainer(config, corpus)
    assert resumed.train_for(math.inf)
    resumed.save(tmp_path / "checkpoint")
    resumed = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    assert resumed.train_for(math.inf), "nothing is left to train"
    _assert_same(_run_to_end(resumed), _run_to_end(GradientTrainer(config, corpus)), tmp_path)


def test_divergence_between_two_reports_ends_paused_and_undisturbed_trials_alike(corpus, make_trial):
    config = make_trial(optimiser=SGD | {"learning_rate": 1e39}, clip_norm=None)
    paused, whole = GradientTrainer(config, corpus), GradientTrainer(config, corpus)
    while not paused.train_for(0.0):
        pass
    assert paused.tokens < corpus["train"].token_count
    assert _read_curve(_run_to_end(paused)) == _read_curve(_run_to_end(whole))


@pytest.mark.cluster
def test_a_trial_killed_during_training_resumes_with_the_same_bits(
    corpus, make_trial, train_whole, tmp_path, corpus_folder
):
    """SIGKILL in the middle of an interval, after two checkpoints of each trial."""
    configs = [_make_trial(make_trial, case) for case in CASES[:2]]
    cache = tmp_path / "node"
    store_backend(select_backend(), cache)  # a second measurement may differ
    arguments = [corpus_folder / "store", corpus_folder / "cache", torch.get_num_threads(), tmp_path]
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("trials_to_kill.py"), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(memtune.__file__).parents[1]), "MEMTUNE_CACHE": str(cache)},
        cwd=root,
    )
    with child:
        stdin = require(child.stdin)
        stdin.write("\n".join(config.model_dump_json() for config in configs))
        stdin.close()
        saved = [
            line for line in _read_lines_until_saved_twice(child, len(configs)) if line.startswith("saved")
        ]
        assert next(require(child.stdout)) == "training\n"
        child.send_signal(signal.SIGKILL)
    assert len(saved) == 2 * len(configs)
    for number, config in enumerate(configs):
        resumed = restore_trainer(read_checkpoint(tmp_path / config.identity(corpus.digest)), corpus)
        assert len(resumed.curve) == 2
        _assert_same(_run_to_end(resumed), train_whole(number), tmp_path)


def _read_lines_until_saved_twice(child: subprocess.Popen, trials: int) -> list[str]:
    lines: list[str] = []
    while sum(line.startswith("saved") for line in lines) < 2 * trials:
        lines.append(next(require(child.stdout)))
    return lines


def test_a_restored_trainer_has_the_position_of_the_saved_one(corpus, make_trial, tmp_path):
    trainer = GradientTrainer(make_trial(epochs=2), corpus)
    trainer.advance()
    trainer.save(tmp_path / "checkpoint")
    restored = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    assert restored.identity == trainer.identity
    assert restored.config == trainer.config
    assert restored.tokens == trainer.tokens
    assert restored.curve == trainer.curve
    assert restored.best == trainer.best
    assert not restored.is_finished


def test_a_finished_trial_stays_finished(corpus, make_trial, tmp_path):
    trainer = _run_to_end(GradientTrainer(make_trial(epochs=1), corpus))
    trainer.save(tmp_path / "checkpoint")
    restored = restore_trainer(read_checkpoint(tmp_path / "checkpoint"), corpus)
    assert restored.is_finished
    assert restored.advance() == trainer.curve[-1]
