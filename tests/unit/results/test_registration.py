"""The model that a study or a training registers when checkpoints are missing."""

import logging
import math
import shutil
from pathlib import Path

import pytest

import memtune
from memtune.api import run_search
from memtune.settings import SINGLE_TRIALS_FOLDER, Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking import list_champions

pytestmark = pytest.mark.usefixtures("without_report")

TRIAL = {"corpus": "tiny", "model": {"family": "lstm", "width": 4}, "training": {"tokens": 300}}


def test_a_trial_without_checkpoints_leaves_the_registration_to_the_next_best(
    study_file: Path,
    settings: Settings,
    tmp_path: Path,
    empty_store: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shutil.copyfile(empty_store, tmp_path / "new.db")
    study_file.write_text(study_file.read_text().replace("trials = 4", "trials = 2"))
    first = run_search(study_file, settings=settings, executor=InProcessExecutor())
    best, second = sorted(first.outcomes, key=lambda outcome: min(outcome.curve.values()))
    shutil.rmtree(Path(first.resolved.checkpoint_root, best.identity))
    elsewhere = settings.model_copy(update={"tracking_uri": f"sqlite:///{tmp_path}/new.db"})
    with caplog.at_level(logging.WARNING):
        resumed = run_search(study_file, settings=elsewhere, resume=True, executor=InProcessExecutor())
    assert resumed.registration is not None
    assert resumed.registration.champion is not None
    assert resumed.registration.champion.trial == second.identity
    assert f"the model of trial lstm #{best.number} cannot be registered" in caplog.text


def test_a_champion_stays_when_its_checkpoints_are_missing(study_file: Path, settings: Settings) -> None:
    """The registry has its own copy of the weights, and the next best model is worse."""
    first = run_search(study_file, settings=settings, executor=InProcessExecutor())
    shutil.rmtree(first.resolved.checkpoint_root)
    more = {"budget.trials": 5}
    resumed = run_search(study_file, more, settings=settings, resume=True, executor=InProcessExecutor())
    (champion,) = list_champions(settings.tracking_uri, "tiny")
    best = min(resumed.outcomes, key=lambda outcome: min(outcome.curve.values()))
    assert champion.trial == best.identity


def test_a_training_is_registered_though_the_checkpoint_of_a_better_seed_is_missing(
    tmp_path: Path, settings: Settings
) -> None:
    """It may be on another machine, or was removed; the mean of all seeds stays the cost."""
    trained = [memtune.train(TRIAL, {"seed": seed}, settings=settings, progress=False) for seed in range(2)]
    best = min(trained, key=lambda each: each.cost or math.inf)
    shutil.rmtree(Path(settings.name_checkpoint_root(SINGLE_TRIALS_FOLDER), best.identity))
    last = memtune.train(TRIAL, {"seed": 2}, settings=settings, progress=False)
    assert last.registration is not None
    assert last.registration.champion is not None
    assert last.registration.champion.seeds == 3
    assert last.registration.champion.trial != best.identity
