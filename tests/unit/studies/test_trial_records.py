"""The study database and the tracking store hold the same curves, also after a driver was killed."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from memtune.search import Outcome, Proposals
from memtune.search.early_stopping import SuccessiveHalving, SuccessiveHalvingConfig
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.director import Director, Trial
from memtune.studies.result_cache import Source
from memtune.studies.study_run import make_assignment
from memtune.studies.trial_records import StudyRecords
from memtune.studies.trial_worker import TrialWorker, WorkerReport
from memtune.tracking import Recorder
from memtune.tracking.mlflow_connection import connect
from memtune.tracking.runs.run_commands import VALIDATED_TOKENS_TAG
from memtune.training import Report
from memtune.trial_state import StopReason, TrialEnd, TrialState
from tests.presence import require

TIME_SPENT = TrialEnd(reason=StopReason.TIME_BUDGET, detail="the study's time budget was spent")


@pytest.fixture
def resolved(study_file: Path, settings: Settings, prepared_store: None) -> ResolvedStudy:
    return resolve_study(study_file, load_study(study_file), settings)


@pytest.fixture
def open_proposals(resolved: ResolvedStudy) -> Callable[[], Proposals]:
    """Opens the study's proposals, as each new driver does."""
    return lambda: resolved.open_proposals(lambda: None)


@pytest.fixture
def client(resolved: ResolvedStudy) -> MlflowClient:
    return connect(resolved.settings.tracking_uri)


@contextmanager
def open_records(resolved: ResolvedStudy) -> Iterator[tuple[Recorder, StudyRecords]]:
    with Recorder(resolved.settings.tracking_uri, resolved.corpus.name) as recorder:
        yield recorder, StudyRecords(recorder, resolved)


def train(resolved: ResolvedStudy, trial: Trial) -> WorkerReport:
    """Train a trial to its end, with checkpoints; the worker's last report, which has the whole curve."""
    worker = TrialWorker(make_assignment(resolved, trial))
    while not (report := worker.step()).is_finished:
        pass
    return report


def start(director: Director) -> Trial:
    trial = director.take_next_trial()
    assert trial is not None
    director.on_started(trial.proposal.number)
    return trial


def run_to_end(resolved: ResolvedStudy, opened: Proposals, records: StudyRecords, count: int) -> None:
    """Run trials to their end."""
    director = Director(opened, records, max_trials=count)
    for _ in range(count):
        trial = start(director)
        director.on_reports(trial.proposal.number, train(resolved, trial).reports)
        director.on_ended(trial.proposal.number)


def read_curve(client: MlflowClient, outcome: Outcome) -> dict[int, float]:
    """Validation loss by tokens in the tracking store."""
    (run,) = find_runs(client, outcome)
    return {m.step: m.value for m in client.get_metric_history(run.info.run_id, "valid_loss")}


def find_runs(client: MlflowClient, outcome: Outcome) -> list:
    experiment = client.get_experiment_by_name("tiny")
    return client.search_runs(
        [require(experiment).experiment_id], f"tags.`memtune.trial` = '{outcome.identity}'"
    )


def record_beyond_database(
    resolved: ResolvedStudy, opened: Proposals, records: StudyRecords
) -> tuple[Trial, tuple[Report, ...]]:
    """Record three reports of a trial, of which the study database takes only one."""
    director = Director(opened, records, max_trials=1)
    trial = start(director)
    reports = train(resolved, trial).reports
    director.on_reports(trial.proposal.number, reports[:1])
    records.report(trial, reports[1:])
    return trial, reports


def resume(resolved: ResolvedStudy, outcomes: list[Outcome]) -> list[str]:
    """Resume the records of a study; the identities of the trials that are sent."""
    sent: list[str] = []
    with open_records(resolved) as (recorder, records):
        start_trial = recorder.start_trial

        def note_and_start(identity: str, *arguments: Any, **more: Any) -> None:
            sent.append(identity)
            start_trial(identity, *arguments, **more)

        recorder.start_trial = note_and_start  # type: ignore[method-assign]
        records.resume(outcomes)
        assert recorder.flush(60)
        assert recorder.problems == []
    return sent


def test_a_worker_beyond_the_rung_that_stops_its_trial_adds_nothing_to_either_store(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    """The worker outlived its driver: the resumed driver gets three reports at once."""
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=300, factor=2), trial_tokens=900)
    rule.decide(98, "lstm", 300, 0.0)
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        director = Director(opened, records, max_trials=1, rule=rule)
        trial = start(director)
        report = train(resolved, trial)
        assert len(report.reports) == 3
        assert not director.on_reports(trial.proposal.number, report.reports)
        director.on_ended(trial.proposal.number)
    (outcome,) = opened.list_finished()
    assert list(outcome.curve) == [report.reports[0].tokens]
    assert read_curve(client, outcome) == pytest.approx(outcome.curve)


def test_resuming_drops_reports_beyond_the_end_that_the_study_database_holds(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        trial, reports = record_beyond_database(resolved, opened, records)
        trial.state, trial.end = TrialState.STOPPED, TIME_SPENT
        opened.prune(trial.proposal.number, TIME_SPENT)
        records.finish(trial)
    (outcome,) = opened.list_finished()
    # earlier versions did not write this tag
    client.delete_tag(find_runs(client, outcome)[0].info.run_id, VALIDATED_TOKENS_TAG)
    assert list(read_curve(client, outcome)) == [report.tokens for report in reports]
    resume(resolved, [outcome])
    assert read_curve(client, outcome) == pytest.approx(outcome.curve)
    assert find_runs(client, outcome)[0].data.tags["memtune.state"] == TrialState.STOPPED


def test_an_open_trial_that_is_stopped_earlier_than_recorded_loses_the_surplus(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    """The first driver recorded three reports, of which the study database took one before the kill."""
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        _, reports = record_beyond_database(resolved, opened, records)
    rule = SuccessiveHalving(SuccessiveHalvingConfig(grace=600, factor=2), trial_tokens=900)
    rule.decide(98, "lstm", 600, 0.0)
    resumed = open_proposals()
    with open_records(resolved) as (_, records):
        records.resume(resumed.list_outcomes())
        director = Director(resumed, records, max_trials=1, rule=rule)
        trial = start(director)
        assert not director.on_reports(trial.proposal.number, reports)
        director.on_ended(trial.proposal.number)
    (outcome,) = resumed.list_finished()
    assert list(outcome.curve) == [report.tokens for report in reports[:2]]
    assert read_curve(client, outcome) == pytest.approx(outcome.curve)


@pytest.mark.parametrize("end", ["completed", "stopped"])
def test_files_of_killed_workers_are_deleted_when_the_resumed_trial_ends(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], end: str
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        trial = start(Director(opened, records, max_trials=1))
        reports = train(resolved, trial).reports
    folder = Path(resolved.checkpoint_root, trial.proposal.identity)
    kept = sorted(folder.iterdir())
    (folder / "000000099999-ab").mkdir()
    (folder / "latest.json.0123456789abcdef.partial").touch()
    resumed = open_proposals()
    with open_records(resolved) as (_, records):
        records.resume(resumed.list_outcomes())
        director = Director(resumed, records, max_trials=1)
        trial = start(director)
        if end == "stopped":
            trial.state, trial.end = TrialState.STOPPED, TIME_SPENT
            resumed.prune(trial.proposal.number, TIME_SPENT)
            director.on_ended(trial.proposal.number)
        else:
            director.on_reports(trial.proposal.number, reports)
            director.on_ended(trial.proposal.number)
    assert sorted(folder.iterdir()) == kept


def test_resuming_sends_only_the_trials_that_the_tracking_store_lacks(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        run_to_end(resolved, opened, records, 2)
    kept, lost = opened.list_finished()
    assert resume(resolved, [kept, lost]) == []
    client.delete_run(find_runs(client, lost)[0].info.run_id)
    assert resume(resolved, [kept, lost]) == [lost.identity]
    assert read_curve(client, lost) == pytest.approx(lost.curve)


@pytest.mark.parametrize("damage", ["missing", "not JSON"])
def test_an_ended_trial_needs_no_checkpoint_to_be_recorded(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient, damage: str
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        run_to_end(resolved, opened, records, 1)
    (outcome,) = opened.list_finished()
    client.delete_run(find_runs(client, outcome)[0].info.run_id)
    folder = Path(resolved.checkpoint_root, outcome.identity)
    if damage == "missing":
        for checkpoint in folder.glob("0*"):
            shutil.rmtree(checkpoint)
    else:
        (folder / "latest.json").write_text("{")
    resume(resolved, [outcome])
    assert read_curve(client, outcome) == pytest.approx(outcome.curve)


def test_a_reused_result_is_a_tag_and_a_remark_of_its_run(
    resolved: ResolvedStudy,
    open_proposals: Callable[[], Proposals],
    client: MlflowClient,
    tmp_path: Path,
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        trial = start(Director(opened, records, max_trials=1))
        trial.remarks.append("checkpoint 7 is skipped")
        records.mark_reused(trial, Source("other", 3, "identity", is_repeat=True))
    (run,) = find_runs(client, opened.list_outcomes()[0])
    assert run.data.tags["memtune.reused_from"] == "other#3 (repeat)"
    path = client.download_artifacts(run.info.run_id, "remarks.txt", str(tmp_path))
    remarks = "checkpoint 7 is skipped\nreuses the training of other#3 (repeat)\n"
    assert Path(path).read_text() == remarks
