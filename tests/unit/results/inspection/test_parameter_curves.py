"""A study by one parameter, and the reports of a trained trial."""

from math import exp
from pathlib import Path

import pytest

from memtune.api import train
from memtune.corpora import open_corpus
from memtune.errors import ConfigurationError, StudyError
from memtune.results.inspection.parameter_curves import (
    collect_parameter_curves,
    read_accuracy_reports,
    read_trial_reports,
)
from memtune.search import StoredTrial
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.director import Director
from memtune.training import GradientTrainer, TrialConfig
from tests.directors import report_curve
from tests.presence import require
from tests.unit.studies.test_director import MemoryRecords, make_report

GRID_SPACE = """
[model]
family = "residual_memory"
width = 4
layers = 2
phi = { choice = [4, 1, 2] }
"""
GRID_STUDY = """question = "How fast should the delay grow?"

corpus = "tiny"
spaces = ["space.toml"]

[training]
tokens = 900
report_every = 300
optimiser = { kind = "sgd", learning_rate = 0.1 }

[sampler]
kind = "grid"

[budget]
trials = 3
"""
LOSSES = {4: 3.0, 1: 2.0, 2: 2.5}
TRIAL = """corpus = "tiny"

[model]
family = "recurrent_memory"
width = 4

[training]
tokens = 900
report_every = 300
optimiser = { kind = "sgd", learning_rate = 0.1 }
"""


def resolve_grid(folder: Path, settings: Settings) -> ResolvedStudy:
    """The study "phi" with its stored file, before its first trial."""
    (folder / "space.toml").write_text(GRID_SPACE)
    path = folder / "phi.toml"
    path.write_text(GRID_STUDY)
    resolved = resolve_study(path, load_study(path), settings)
    stored = Folder.open(f"{settings.studies_folder}/{resolved.id}")
    stored.write_json("study.json", resolved.study.model_dump(mode="json"))
    return resolved


def train_grid_trial(proposal: StoredTrial, settings: Settings) -> GradientTrainer:
    """The trainer of a proposed trial at its end."""
    config = TrialConfig.model_validate(proposal.configuration)
    trainer = GradientTrainer(config, open_corpus("tiny", settings.corpus_store))
    while not trainer.is_finished:
        trainer.advance()
    return trainer


@pytest.fixture
def study(tmp_path: Path, settings: Settings) -> str:
    """A grid over phi, whose trials end with the costs LOSSES; only the trial of phi = 2 has a checkpoint."""
    resolved = resolve_grid(tmp_path, settings)
    director = Director(resolved.open_proposals(), MemoryRecords(), 3, None)
    while trial := director.take_next_trial():
        number, phi = trial.proposal.number, trial.proposal.configuration["model"]["phi"]
        director.on_started(number)
        cost = LOSSES[phi]
        report_curve(director, number, [make_report(300, cost + 0.5), make_report(900, cost, "budget")])
        director.on_ended(number)
        if phi == 2:
            trainer = train_grid_trial(trial.proposal, settings)
            Checkpoints(resolved.checkpoint_root, trial.proposal.identity).save(trainer)
    return resolved.id


def test_trials_are_ordered_by_the_parameter_with_their_best_figures(study: str, settings: Settings) -> None:
    found = collect_parameter_curves("phi", "model.phi", settings)
    assert (found.study, found.question, found.parameter) == (
        study,
        "How fast should the delay grow?",
        "model.phi",
    )
    assert [(trial.value, trial.state, trial.tokens) for trial in found.trials] == [
        (1, "complete", 900),
        (2, "complete", 900),
        (4, "complete", 900),
    ]
    assert [trial.best for trial in found.trials] == pytest.approx([exp(2.0), exp(2.5), exp(3.0)])


def test_the_reports_of_a_trial_are_those_of_its_checkpoint(study: str, settings: Settings) -> None:
    without, trained, _ = collect_parameter_curves(study, "model.phi", settings).trials
    assert without.reports == ()
    assert [point.tokens for point in trained.reports] == sorted(point.tokens for point in trained.reports)
    assert len(trained.reports) == 3
    perplexities = [(point.train_perplexity or 0, point.valid_perplexity or 0) for point in trained.reports]
    assert all(train > 1 and valid > 1 for train, valid in perplexities)


def test_the_reports_of_a_trial_that_ended_early_end_with_the_trial(
    tmp_path: Path, settings: Settings
) -> None:
    """A worker trains on while the study stops its trial, so its checkpoint has later reports."""
    resolved = resolve_grid(tmp_path, settings)
    director = Director(resolved.open_proposals(), MemoryRecords(), 1, None)
    trial = require(director.take_next_trial())
    director.on_started(trial.proposal.number)
    trainer = train_grid_trial(trial.proposal, settings)
    report_curve(director, trial.proposal.number, trainer.curve[:1], error="it ended here")
    Checkpoints(resolved.checkpoint_root, trial.proposal.identity).save(trainer)
    (found,) = collect_parameter_curves(resolved.id, "model.phi", settings).trials
    assert len(trainer.curve) == 3
    assert [point.tokens for point in found.reports] == [found.tokens] == [trainer.curve[0].tokens]


def test_trials_that_leave_a_parameter_unset_come_last(tmp_path: Path, settings: Settings) -> None:
    """The space of one family sets a patience, that of the other one has none."""
    (tmp_path / "patient.toml").write_text(f"{GRID_SPACE}[training]\npatience = 2\n")
    (tmp_path / "other.toml").write_text('[model]\nfamily = "lstm"\nwidth = 4\n')
    path = tmp_path / "patience.toml"
    path.write_text(GRID_STUDY.replace('"space.toml"', '"other.toml", "patient.toml"').replace("= 3", "= 4"))
    resolved = resolve_study(path, load_study(path), settings)
    director = Director(resolved.open_proposals(), MemoryRecords(), 4, None)
    while trial := director.take_next_trial():
        director.on_started(trial.proposal.number)
    found = collect_parameter_curves(resolved.id, "training.patience", settings)
    assert [trial.value for trial in found.trials] == [2, 2, 2, None]


def test_an_unknown_parameter_is_named_with_a_suggestion(study: str, settings: Settings) -> None:
    with pytest.raises(StudyError, match=r'has a parameter "model.fi"; did you mean "model.phi"'):
        collect_parameter_curves(study, "model.fi", settings)


def test_the_reports_of_a_registered_model_are_those_of_its_training(
    tmp_path: Path, settings: Settings
) -> None:
    path = tmp_path / "trial.toml"
    path.write_text(TRIAL)
    trained = train(path, settings=settings)
    found = read_trial_reports("models:/tiny@champion", settings)
    assert (found.family, found.protocol) == ("recurrent_memory", "sentence")
    assert [(point.tokens, point.train_perplexity, point.valid_perplexity) for point in found.points] == [
        (report.tokens, report.train_perplexity, report.valid_perplexity) for report in trained.curve
    ]
    with pytest.raises(
        ConfigurationError, match=r"no report of models:/tiny@champion has an accuracy; .*agree"
    ):
        read_accuracy_reports(["models:/tiny@champion"], settings)
