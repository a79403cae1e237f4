"""The study database and the tracking store hold the same curves, also after a driver was killed."""

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from memtune.search import Proposals, StoredTrial
from memtune.search.early_stopping import SuccessiveHalving, SuccessiveHalvingConfig
from memtune.settings import Settings
from memtune.studies.budgets import CostRow, StudyCost
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.director import DirectedTrial, Director
from memtune.studies.seed_repeats import TrialNames, make_repeat_space
from memtune.studies.study_run import make_assignment
from memtune.studies.trial_records import StudyRecords
from memtune.studies.trial_worker import TrialWorker
from memtune.tracking import Recorder
from memtune.tracking.mlflow_connection import connect
from memtune.tracking.runs import run_tags
from memtune.training import Report
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.usage import NodeSeconds, Usage
from tests.directors import report_curve
from tests.presence import require
from tests.unit.studies.study_files import resolve

RANK_5 = TrialEnd(reason=StopReason.EARLY_STOPPING, detail="rank 5 of 9")


@pytest.fixture
def resolved(study_file: Path, settings: Settings) -> ResolvedStudy:
    return resolve(study_file, settings)


@pytest.fixture
def comparing(study_file: Path, settings: Settings) -> ResolvedStudy:
    """The study, with numbers of layers as its alternatives."""
    study_file.write_text(f'compare = "model.layers"\n{study_file.read_text()}')
    return resolve(study_file, settings)


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


def train(resolved: ResolvedStudy, trial: DirectedTrial) -> tuple[Report, ...]:
    """Train a trial to its end, with checkpoints, and return its curve."""
    assignment = make_assignment(resolved, trial)
    worker = TrialWorker(assignment)
    while not worker.step().is_finished:
        pass
    return TrialWorker(assignment).step().reports


def start(director: Director) -> DirectedTrial:
    trial = director.take_next_trial()
    assert trial is not None
    director.on_started(trial.proposal.number)
    return trial


def run_to_end(resolved: ResolvedStudy, opened: Proposals, records: StudyRecords, count: int) -> None:
    """Run trials to their end."""
    director = Director(opened, records, max_trials=count)
    for _ in range(count):
        trial = start(director)
        report_curve(director, trial.proposal.number, train(resolved, trial))
        director.on_ended(trial.proposal.number)


def read_curve(client: MlflowClient, outcome: StoredTrial) -> dict[int, float]:
    """Validation loss by tokens in the tracking store."""
    (run,) = find_runs(client, outcome)
    return {m.step: m.value for m in client.get_metric_history(run.info.run_id, "valid_loss")}


def find_runs(client: MlflowClient, outcome: StoredTrial) -> list:
    experiment = client.get_experiment_by_name("tiny")
    return client.search_runs(
        [require(experiment).experiment_id], f"tags.`memtune.trial` = '{outcome.identity}'"
    )


@pytest.fixture(autouse=True)
def require_everything_recorded(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The store refuses no entry of these tests."""
    yield
    assert not [record for record in caplog.get_records("call") if "was not recorded" in record.message]


def record_beyond_database(
    resolved: ResolvedStudy, opened: Proposals, records: StudyRecords
) -> tuple[DirectedTrial, tuple[Report, ...]]:
    """Record three reports of a trial, of which the study database takes only one."""
    director = Director(opened, records, max_trials=1)
    trial = start(director)
    reports = train(resolved, trial)
    report_curve(director, trial.proposal.number, reports[:1])
    records.report(trial, reports[1:])
    return trial, reports


def resume(resolved: ResolvedStudy, outcomes: list[StoredTrial]) -> list[str]:
    """Resume the records of a study; the identities of the trials that are sent."""
    sent: list[str] = []
    with open_records(resolved) as (recorder, records):
        start_trial = recorder.start_trial

        def note_and_start(identity: str | None, *arguments: Any, **more: Any) -> None:
            sent.append(str(identity))
            start_trial(identity, *arguments, **more)

        recorder.start_trial = note_and_start  # type: ignore[method-assign]
        records.resume(outcomes)
        assert recorder.flush(60)
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
        curve = train(resolved, trial)
        assert len(curve) == 3
        assert not report_curve(director, trial.proposal.number, curve)
        director.on_ended(trial.proposal.number)
    (outcome,) = opened.list_finished()
    assert list(outcome.curve) == [curve[0].tokens]
    assert read_curve(client, outcome) == pytest.approx(outcome.curve)


def test_resuming_drops_reports_beyond_the_end_that_the_study_database_holds(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        trial, reports = record_beyond_database(resolved, opened, records)
        trial.state, trial.end = TrialState.STOPPED, RANK_5
        opened.stop(trial.proposal.number, RANK_5)
        records.finish(trial)
    (outcome,) = opened.list_finished()
    # earlier versions did not write this tag
    client.delete_tag(find_runs(client, outcome)[0].info.run_id, run_tags.VALIDATED_TOKENS)
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
        assert not report_curve(director, trial.proposal.number, reports)
        director.on_ended(trial.proposal.number)
    (outcome,) = resumed.list_finished()
    assert list(outcome.curve) == [report.tokens for report in reports[:2]]
    assert read_curve(client, outcome) == pytest.approx(outcome.curve)


def test_a_trial_that_is_started_again_keeps_what_this_driver_has_recorded(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    """A driver was killed before the first report; the next one pauses the trial and continues it."""
    open_proposals().ask()
    resumed = open_proposals()
    with open_records(resolved) as (_, records):
        records.resume(resumed.list_outcomes())
        director = Director(resumed, records, max_trials=1)
        trial = start(director)
        curve = train(resolved, trial)
        report_curve(director, trial.proposal.number, curve[:2])
        records.start(trial)
        director.on_ended(trial.proposal.number)
    (outcome,) = resumed.list_outcomes()
    assert list(read_curve(client, outcome)) == [report.tokens for report in curve[:2]]


@pytest.mark.parametrize("end", ["completed", "stopped"])
def test_files_of_killed_workers_are_deleted_when_the_resumed_trial_ends(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], end: str
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        trial = start(Director(opened, records, max_trials=1))
        reports = train(resolved, trial)
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
            trial.state, trial.end = TrialState.STOPPED, RANK_5
            resumed.stop(trial.proposal.number, RANK_5)
            director.on_ended(trial.proposal.number)
        else:
            report_curve(director, trial.proposal.number, reports)
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


def test_a_diverged_trial_is_recorded_up_to_its_last_report_which_has_no_validation(
    resolved: ResolvedStudy,
    open_proposals: Callable[[], Proposals],
    client: MlflowClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        run_to_end(resolved, opened, records, 1)
    (complete,) = opened.list_finished()
    *earlier, last = Checkpoints(resolved.checkpoint_root, complete.identity).read_curve()
    diverged = TrialEnd(reason=StopReason.DIVERGED)
    end = last.model_copy(update={"valid_loss": None, "valid_perplexity": None, "end": diverged})
    monkeypatch.setattr(Checkpoints, "read_curve", lambda self: (*earlier, end))
    curve = {report.tokens: complete.curve[report.tokens] for report in earlier}
    client.delete_run(find_runs(client, complete)[0].info.run_id)
    resume(resolved, [replace(complete, curve=curve, end=diverged)])
    (run,) = find_runs(client, complete)
    assert run.data.metrics["tokens"] == last.tokens
    assert read_curve(client, complete) == pytest.approx(curve)


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
        records.mark_reused(trial, "other#3 seed 1")
    (run,) = find_runs(client, opened.list_outcomes()[0])
    assert run.data.tags["memtune.reused_from"] == "other#3 seed 1"
    path = client.download_artifacts(run.info.run_id, "remarks.txt", str(tmp_path))
    remarks = "checkpoint 7 is skipped\nreuses the training of other#3 seed 1\n"
    assert Path(path).read_text() == remarks


@pytest.mark.parametrize(
    ("remarks", "state", "is_deleted"),
    [
        (["checkpoint 7 is skipped"], TrialState.COMPLETE, True),
        (["checkpoint 7 is skipped"], TrialState.INTERRUPTED, False),
        ([], TrialState.COMPLETE, False),
    ],
)
def test_files_of_killed_workers_are_deleted_at_the_end_of_a_restored_trial_alone(
    resolved: ResolvedStudy,
    open_proposals: Callable[[], Proposals],
    remarks: list[str],
    state: TrialState,
    is_deleted: bool,
) -> None:
    """An interrupted trial may still have a worker, and one that was never restored lost none."""
    with open_records(resolved) as (_, records):
        trial = start(Director(open_proposals(), records, max_trials=1))
        folder = Path(resolved.checkpoint_root, trial.proposal.identity, "000000099999-ab")
        folder.mkdir(parents=True)
        trial.remarks, trial.state = remarks, state
        records.finish(trial)
    assert folder.exists() != is_deleted


def test_files_of_killed_workers_that_cannot_be_deleted_are_a_warning(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], caplog: pytest.LogCaptureFixture
) -> None:
    with open_records(resolved) as (_, records):
        trial = start(Director(open_proposals(), records, max_trials=1))
        folder = Path(resolved.checkpoint_root, trial.proposal.identity)
        (folder / "latest.json").mkdir(parents=True)
        trial.remarks, trial.state = ["checkpoint 7 is skipped"], TrialState.COMPLETE
        records.finish(trial)
    (message,) = caplog.messages
    assert message.startswith("files of killed workers remain: ")
    assert "latest.json is not a regular file" in message


def finish_trial(resolved: ResolvedStudy, opened: Proposals) -> None:
    """Record a trial that ends after 1234.56 core seconds."""
    with open_records(resolved) as (_, records):
        trial = start(Director(opened, records, max_trials=1))
        trial.usage, trial.state = Usage(nodes={"": NodeSeconds(cpu=1234.56)}), TrialState.COMPLETE
        records.finish(trial)


def test_the_money_of_a_trial_has_three_digits(
    study_file: Path, settings: Settings, client: MlflowClient
) -> None:
    study_file.write_text(f"{study_file.read_text()}\n[prices]\ncpu_hour = 3600.0\n")
    priced = resolve(study_file, settings)
    opened = priced.open_proposals()
    finish_trial(priced, opened)
    (run,) = find_runs(client, opened.list_outcomes()[0])
    assert run.data.metrics["spent_money"] == 1230.0


def test_a_trial_whose_run_is_missing_is_recorded_with_its_money(
    study_file: Path, settings: Settings, client: MlflowClient
) -> None:
    study_file.write_text(f"{study_file.read_text()}\n[prices]\ncpu_hour = 3600.0\n")
    priced = resolve(study_file, settings)
    opened = priced.open_proposals()
    number = require(opened.ask()).number
    opened.store_usage(number, Usage(nodes={"": NodeSeconds(cpu=1234.56)}))
    opened.report(number, 900, 2.0)
    opened.complete(number, 2.0)
    outcomes = opened.list_outcomes()
    assert resume(priced, outcomes) == [outcomes[0].identity]
    (run,) = find_runs(client, outcomes[0])
    assert run.data.metrics["spent_money"] == 1230.0


def test_a_study_without_prices_records_no_money(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    finish_trial(resolved, opened := open_proposals())
    (run,) = find_runs(client, opened.list_outcomes()[0])
    assert "spent_money" not in run.data.metrics


def test_a_run_is_numbered_as_its_trial(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        director = Director(opened, records, max_trials=2)
        for _ in range(2):
            start(director)
    for number, outcome in enumerate(opened.list_outcomes()):
        (run,) = find_runs(client, outcome)
        assert run.info.run_name == f"lstm #{number}"
        assert run.data.tags["memtune.number"] == str(number)


def test_the_run_of_a_repeat_is_numbered_as_the_trial_and_its_seed(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        start(Director(opened, records, max_trials=1))
        (original,) = opened.list_outcomes()
        records.names = TrialNames([original])
        repeats = resolved.open_proposals(repeats=make_repeat_space([original], range(2)))
        start(Director(repeats, records, max_trials=1))
    (run,) = find_runs(client, repeats.list_outcomes()[0])
    assert run.info.run_name == "lstm #0 seed 1"
    assert run.data.tags["memtune.number"] == "0 seed 1"


def test_the_run_of_a_trial_is_named_after_what_its_study_compares(
    comparing: ResolvedStudy, client: MlflowClient
) -> None:
    opened = comparing.open_proposals()
    with open_records(comparing) as (_, records):
        start(Director(opened, records, max_trials=1))
    (outcome,) = opened.list_outcomes()
    (run,) = find_runs(client, outcome)
    assert run.info.run_name == f"layers {dict(outcome.config.model)['layers']} #0"


def test_the_runs_of_one_alternative_have_one_colour_in_mlflow_and_those_of_another_a_different_one(
    comparing: ResolvedStudy, client: MlflowClient
) -> None:
    opened = comparing.open_proposals()
    with open_records(comparing) as (_, records):
        director = Director(opened, records, max_trials=4)
        for _ in range(4):
            start(director)
    runs = [run for outcome in opened.list_outcomes() for run in find_runs(client, outcome)]
    colours = {(run.data.tags["memtune.alternative"], run.data.tags["mlflow.runColor"]) for run in runs}
    assert len({alternative for alternative, _ in colours}) == len({colour for _, colour in colours})
    assert len(colours) == len({alternative for alternative, _ in colours}) > 1


def make_cost(tokens: int) -> StudyCost:
    """The cost of a study that lasted a minute."""
    total = CostRow(group="all", trials=1, tokens=tokens, cpu_hours=1.5, gpu_hours=0.0, money=None)
    return StudyCost(
        study="layers",
        total=total,
        by_state=(),
        by_family=(),
        seconds=60.0,
        full_tokens=900,
        saved_tokens=0,
        currency=None,
    )


@pytest.mark.parametrize(("interrupted", "status"), [(True, "KILLED"), (False, "FINISHED")])
def test_a_study_ends_with_its_cost_and_the_progress_that_a_killed_driver_did_not_record(
    resolved: ResolvedStudy,
    open_proposals: Callable[[], Proposals],
    client: MlflowClient,
    interrupted: bool,
    status: str,
) -> None:
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        trial = start(Director(opened, records, max_trials=1))
    opened.report(trial.proposal.number, 900, 2.0)
    opened.store_usage(trial.proposal.number, Usage(tokens=900, nodes={}))
    opened.complete(trial.proposal.number, 2.0)
    with open_records(resolved) as (_, records):
        records.resume(opened.list_outcomes())
        records.record_cost(make_cost(tokens=1000))
        records.close(interrupted)
    run = find_study_run(client)
    assert run.info.status == status
    for name, value in {
        "trials_complete": 1.0,
        "trials_running": 0.0,
        "best_validation": math.exp(2.0),
        "spent_tokens": 1000.0,
        "spent_cpu_hours": 1.5,
        "spent_seconds": 60.0,
    }.items():
        assert run.data.metrics[name] == pytest.approx(value), name
        assert client.get_metric_history(run.info.run_id, name)[-1].step == 1000


def test_the_last_figures_of_a_study_are_at_the_most_tokens(
    resolved: ResolvedStudy, open_proposals: Callable[[], Proposals], client: MlflowClient
) -> None:
    """MLflow shows the figures at the most tokens, and the cost may count fewer than the progress."""
    opened = open_proposals()
    with open_records(resolved) as (_, records):
        trial = start(Director(opened, records, max_trials=1))
        trial.usage, trial.state = Usage(tokens=900, nodes={}), TrialState.COMPLETE
        records.finish(trial)
        records.record_cost(make_cost(tokens=300))
        records.close(False)
    run = find_study_run(client)
    assert run.data.metrics["spent_seconds"] == 60.0
    assert client.get_metric_history(run.info.run_id, "spent_seconds")[-1].step == 900


def find_study_run(client: MlflowClient) -> Run:
    experiment = client.get_experiment_by_name("tiny")
    (run,) = client.search_runs([require(experiment).experiment_id], "tags.`memtune.role` = 'study'")
    return run
