"""A configuration that another study of the home has trained is not trained again."""

from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run

from memtune.api import run_search
from memtune.corpora import import_corpus
from memtune.errors import CheckpointError, ConfigurationError
from memtune.reports.report_page.page import render_page
from memtune.results.model_evaluation import evaluate
from memtune.results.study.study_catalogue import remove_study
from memtune.results.study.study_leaderboard import make_leaderboard
from memtune.results.study.study_report import make_study_report
from memtune.results.study.study_view import open_view
from memtune.results.study.verdicts import judge_study
from memtune.results.study_conclusion import describe_answer
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.executor import InProcessExecutor
from memtune.studies.result_cache import ResultCache
from memtune.studies.study_run import StudyResult
from memtune.tracking import read_leaderboard
from memtune.tracking.mlflow_connection import connect
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from tests.conftest import SENTENCES
from tests.presence import require
from tests.unit.studies.test_interrupted_studies import read_curves, relocate

NONE: dict[str, Any] = {"early_stopping": {"kind": "none"}}
HALVING: dict[str, Any] = {"early_stopping": {"kind": "successive_halving", "grace": 300, "factor": 2}}
EXTENDABLE: dict[str, Any] = {"budget__trials": 1, "training__schedule": {"kind": "constant"}}


def run(study_file: Path, settings: Settings, reuse: bool = True, **overrides: Any) -> StudyResult:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return run_search(study_file, named, settings=settings, executor=InProcessExecutor(), reuse=reuse)


@pytest.mark.parametrize(("old", "new"), [('"budget"', '"no_reason"'), ('"width"', '"breadth"')])
def test_a_study_of_another_version_does_not_stop_a_search(
    old: str, new: str, study_file: Path, settings: Settings
) -> None:
    run(study_file, settings, budget__trials=1)
    journal = Path(settings.study_database.removeprefix("journal://"))
    assert old in journal.read_text()
    journal.write_text(journal.read_text().replace(old, new))
    assert len(run(study_file, settings, name="again", budget__trials=1).outcomes) == 1


def test_a_study_of_another_version_is_not_resumed(study_file: Path, settings: Settings) -> None:
    run(study_file, settings, budget__trials=1)
    journal = Path(settings.study_database.removeprefix("journal://"))
    journal.write_text(journal.read_text().replace('"width"', '"breadth"'))
    with pytest.raises(ConfigurationError, match=r"study layers-.*, trial 0: unknown name .*breadth"):
        run(study_file, settings, budget__trials=1)


def read_ends(result: StudyResult) -> list[tuple[str, str, str | None]]:
    return [(o.identity, o.state, o.end.detail if o.end else None) for o in result.outcomes]


def test_trained_configurations_are_reused_and_stopped_as_if_they_had_been_trained(
    study_file: Path, settings: Settings, tmp_path: Path, empty_store: Path
) -> None:
    first = run(study_file, settings, sampler={"kind": "random"}, **NONE)
    again = run(study_file, settings, sampler={"kind": "random"}, name="again", **HALVING)
    trained = run(
        study_file,
        relocate(settings, tmp_path / "fresh", empty_store),
        sampler={"kind": "random"},
        name="again",
        **HALVING,
    )
    assert {outcome.identity for outcome in again.outcomes} == {o.identity for o in first.outcomes}
    assert read_ends(again) == read_ends(trained)
    assert "stopped" in {outcome.state for outcome in again.outcomes}
    assert read_curves(again) == read_curves(trained)
    assert sum(outcome.usage.tokens for outcome in first.outcomes) >= 4 * 900
    assert sum(outcome.usage.tokens for outcome in again.outcomes) == 0

    (figures,) = [run.data.metrics for run in find_runs(settings, first.resolved.id, "study")]
    spent = sum(outcome.usage.tokens for outcome in first.outcomes)
    assert (figures["spent_tokens"], figures["saved_tokens"]) == (spent, 0)
    assert figures["spent_cpu_hours"] == pytest.approx(
        sum(outcome.usage.cpu_seconds for outcome in first.outcomes) / 3600
    )

    tags = read_reuse_tags(settings, again.resolved.id)
    assert tags == {o.identity: f"{first.resolved.id}#{o.number}" for o in first.outcomes}

    one: dict[str, Any] = {"sampler": {"kind": "random"}, "budget__trials": 1}
    forced = run(study_file, settings, reuse=False, name="forced", **one, **NONE)
    assert sum(outcome.usage.tokens for outcome in forced.outcomes) >= 900
    removed = remove_study(forced.resolved.id, with_runs=True, settings=settings)
    assert removed == 1 + 1
    assert {row.study for row in read_leaderboard(settings.tracking_uri, "tiny")} == {
        first.resolved.id,
        again.resolved.id,
    }


def test_a_reused_training_has_no_hours_in_the_answer_the_page_and_the_json(
    study_file: Path, settings: Settings
) -> None:
    run(study_file, settings, **NONE)
    view = open_view(run(study_file, settings, name="again", **NONE).resolved.id, settings)
    verdict, winner = require(judge_study(view)), require(view.ranking).winner
    assert "core h" not in describe_answer(view, verdict, winner)
    assert f"{len(view.trials)} of {len(view.trials)} trainings are reused" in verdict.text
    entry = make_leaderboard(view).entries[0]
    assert (entry.trainings, entry.model_dump(mode="json")["cpu_hours"]) == (0, None)
    assert entry.measure("cpu_hours") is None
    assert "reused from other studies" in render_page(make_study_report(view))
    assert view.compute_cost().total.tokens == 0


@pytest.mark.parametrize(
    "terms",
    [
        {"champion__min_tokens_per_second": 1.0},
        {"objectives": ["value", "tokens_per_second"], "sampler": {"kind": "random"}},
    ],
)
def test_a_study_that_measures_speed_trains_everything(
    study_file: Path, settings: Settings, terms: dict[str, Any]
) -> None:
    run(study_file, settings, budget__trials=1, **terms, **NONE)
    again = run(study_file, settings, name="again", budget__trials=1, **terms, **NONE)
    assert require(again.outcomes[0].usage.tokens_per_second) > 0


def test_a_trial_with_a_checkpoint_of_its_own_keeps_it(study_file: Path, settings: Settings) -> None:
    first = run(study_file, settings, budget__trials=1, **NONE).resolved
    trial = TrialConfig.model_validate(first.open_proposals().list_outcomes()[0].configuration)
    root = f"{settings.studies_folder}/another/checkpoints"
    cache = ResultCache(settings, "another", first.corpus.digest)
    assert cache.reuse(trial, root) == f"{first.id}#0"
    assert cache.reuse(trial, root) is None


def test_a_reused_trial_names_the_trial_that_can_be_used(study_file: Path, settings: Settings) -> None:
    """A repeat has the name of the trial that it repeats; a copy that was stopped early has no weights."""
    repeats = {"best": 1, "seeds": 2}
    first = run(study_file, settings, repeats=repeats, **NONE)
    best = min(first.outcomes, key=lambda outcome: require(outcome.value))
    again = run(study_file, settings, name="again", repeats=repeats, **HALVING)
    tags = read_reuse_tags(settings, again.resolved.id)
    assert tags[again.repeats[0].identity] == f"{first.resolved.id}#{best.number} seed 1"

    stopped = next(outcome for outcome in again.outcomes if outcome.state is TrialState.STOPPED)
    origin = f"{first.resolved.id}#{stopped.number}"
    with pytest.raises(CheckpointError, match=f'use "{origin}", which has trained it'):
        evaluate(f"again#{stopped.number}", settings=settings)
    assert evaluate(origin, settings=settings).metrics.loss > 0


@pytest.mark.parametrize(("schedule", "is_reused"), [("constant", True), ("plateau", False)])
def test_a_longer_training_continues_a_shorter_one_under_a_constant_schedule(
    study_file: Path, settings: Settings, tmp_path: Path, empty_store: Path, schedule: str, is_reused: bool
) -> None:
    terms: dict[str, Any] = {"budget__trials": 1, "training__schedule": {"kind": schedule}}
    run(study_file, settings, **terms)
    longer = run(study_file, settings, training__tokens=1800, **terms)
    trained = run(
        study_file, relocate(settings, tmp_path / "fresh", empty_store), training__tokens=1800, **terms
    )
    assert read_curves(longer) == read_curves(trained)
    (outcome,), (whole,) = longer.outcomes, trained.outcomes
    expected = whole.usage.tokens - sorted(outcome.curve)[2] if is_reused else whole.usage.tokens
    assert outcome.usage.tokens == expected
    (entry,) = make_leaderboard(open_view(longer.resolved.id, settings)).entries
    assert entry.measure("tokens_per_second") == outcome.usage.tokens_per_second
    record = Checkpoints(longer.resolved.checkpoint_root, outcome.identity).read().record
    spent = [report.cpu_seconds for report in record.curve]
    assert spent == sorted(spent)
    assert (spent[0] == 0) == is_reused


def lengthen_training(result: StudyResult, tokens: int) -> TrialConfig:
    """The first trial of a study with more tokens of training."""
    config = TrialConfig.model_validate(result.outcomes[0].configuration)
    training = config.gradient_training.model_copy(update={"tokens": tokens})
    return config.model_copy(update={"training": training})


def test_the_longest_of_several_shorter_trainings_is_continued(study_file: Path, settings: Settings) -> None:
    studies = {
        tokens: run(study_file, settings, reuse=False, training__tokens=tokens, **EXTENDABLE)
        for tokens in (300, 900, 600)
    }
    trial, corpus_digest = lengthen_training(studies[600], 1800), studies[600].resolved.corpus.digest
    root = f"{settings.studies_folder}/another/checkpoints"
    origin = ResultCache(settings, "another", corpus_digest).reuse(trial, root)
    assert origin == f"{studies[900].resolved.id}#0"
    stored = Checkpoints(root, trial.identity(corpus_digest)).read()
    assert [report.tokens for report in stored.record.curve] == sorted(studies[900].outcomes[0].curve)


def test_a_shorter_training_on_another_corpus_is_not_continued(study_file: Path, settings: Settings) -> None:
    """Both corpora have the same words, so the weights of one have the shapes of the other's."""
    first = run(study_file, settings, **EXTENDABLE)
    splits = dict.fromkeys(("train", "valid", "test"), SENTENCES[::-1] * 20)
    other = import_corpus("reversed", splits, settings.corpus_store).manifest.digest
    trial, root = lengthen_training(first, 1800), f"{settings.studies_folder}/another/checkpoints"
    assert ResultCache(settings, "another", other).reuse(trial, root) is None
    own = ResultCache(settings, "another", first.resolved.corpus.digest)
    assert own.reuse(trial, root) == f"{first.resolved.id}#0"


def read_reuse_tags(settings: Settings, study: str) -> dict[str, str]:
    """Where each trial of a study was trained according to MLflow, by identity."""
    return {
        run.data.tags["memtune.trial"]: run.data.tags["memtune.reused_from"]
        for run in find_runs(settings, study, "trial")
        if "memtune.reused_from" in run.data.tags
    }


def find_runs(settings: Settings, study: str, role: str) -> list[Run]:
    """The run of a study, or those of its trials."""
    client = connect(settings.tracking_uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    condition = f"tags.`memtune.study` = '{study}' AND tags.`memtune.role` = '{role}'"
    return list(client.search_runs(experiments, condition))
