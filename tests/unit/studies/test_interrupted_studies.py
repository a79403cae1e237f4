"""Studies that end by a time budget or a signal continue from their checkpoints."""

import itertools
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow import MlflowClient

from memtune.api import run_search
from memtune.errors import ExecutorLostError, StudyError
from memtune.library import RESUMED_VARIABLE
from memtune.results.study.study_catalogue import study_cost
from memtune.results.study.study_detail import SearchResult, show_study
from memtune.settings import Settings
from memtune.storage.folder import Folder
from memtune.studies import budgets, study_run
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.executor import ExecutorRun, InProcessExecutor, StopRequest
from memtune.studies.study_run import StudyResult
from memtune.studies.trial_worker import TrialWorker
from memtune.tracking.mlflow_connection import connect
from memtune.trial_state import TrialState
from tests.unit.studies.study_files import resolve


def test_trials_cut_off_by_a_time_budget_continue_with_a_larger_one(
    study_file: Path, settings: Settings, tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_trials(study_file)
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))  # a second for each training step
    monkeypatch.setattr(budgets, "time", clock)
    cut = run_search(study_file, {"budget.time": "30s"}, settings=settings, executor=InProcessExecutor())
    assert cut.spent_budget is not None
    assert cut.spent_budget.startswith("budget.time ")
    assert not cut.is_interrupted
    (open_trial,) = cut.open_trials
    assert cut.outcomes[-1].state is TrialState.RUNNING
    stored = Checkpoints(cut.resolved.checkpoint_root, open_trial.proposal.identity)
    assert stored.read().record.position.tokens > 0

    continued = run_search(
        study_file, {"budget.time": "1h"}, settings=settings, executor=InProcessExecutor(), resume=True
    )
    assert continued.spent_budget is None
    assert continued.open_trials == []
    undisturbed = run_search(
        study_file,
        settings=relocate(settings, tmp_path / "undisturbed", empty_store),
        executor=InProcessExecutor(),
    )
    assert read_curves(continued) == read_curves(undisturbed)
    assert read_recorded_curves(continued, settings) == read_curves(continued)


def test_the_time_of_a_driver_that_starts_no_trial_counts(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start may take longer than the time that is left."""
    lengthen_trials(study_file)
    seconds = itertools.count()
    monkeypatch.setattr(budgets, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    terms = {"budget.time": "30s"}
    cut = run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    before = study_cost(cut.resolved.id, settings).seconds
    again = run_search(study_file, terms, settings=settings, executor=InProcessExecutor(), resume=True)
    assert again.spent_budget is not None
    spent = study_cost(cut.resolved.id, settings).seconds
    assert spent > before
    client = connect(settings.tracking_uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = client.search_runs(experiments, "tags.`memtune.role` = 'study'")
    assert run.data.metrics["spent_seconds"] == spent, "the same figure everywhere"
    assert run.info.status == "KILLED", "its trials are open"


def test_a_study_whose_time_ended_before_its_first_trial_is_resumed(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end says that --resume continues it."""
    seconds = itertools.count(0, 10)
    monkeypatch.setattr(budgets, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    cut = run_search(study_file, {"budget.time": "1s"}, settings=settings, executor=InProcessExecutor())
    assert cut.outcomes == []
    terms = {"budget.time": "1d", "budget.trials": 1}
    continued = run_search(study_file, terms, settings=settings, executor=InProcessExecutor(), resume=True)
    assert [outcome.state for outcome in continued.outcomes] == [TrialState.COMPLETE]


def test_a_study_that_is_interrupted_repeatedly_ends_like_an_undisturbed_one(
    study_file: Path, settings: Settings, tmp_path: Path, empty_store: Path
) -> None:
    """Each driver is interrupted long before the only report of its trial."""
    lengthen_trials(study_file, trials=1)
    interruptions = 0
    while run_interrupted(study_file, settings, resume=interruptions > 0).is_interrupted:
        interruptions += 1
        assert interruptions < 10, "no progress"
    assert interruptions >= 3
    undisturbed = run_search(
        study_file,
        settings=relocate(settings, tmp_path / "undisturbed", empty_store),
        executor=InProcessExecutor(),
    )
    found = resolve(study_file, settings).open_proposals().list_outcomes()
    assert {outcome.identity: outcome.curve for outcome in found} == read_curves(undisturbed)


def test_an_interrupted_study_is_shown_as_one(study_file: Path, settings: Settings) -> None:
    lengthen_trials(study_file, trials=1)
    cut = run_interrupted(study_file, settings, resume=False)
    assert repr(cut) == f"SearchResult({cut.id}: 1 trial, interrupted with 1 trial open)"
    assert cut._repr_html_().startswith("<p>interrupted with 1 trial open</p>")


def test_ctrl_c_stops_a_study_in_order_and_then_raises(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengthen_trials(study_file, trials=1)
    with monkeypatch.context() as patch:
        patch.setattr(study_run, "StopRequest", InterruptingStop)
        fix = r"study layers-.{8} stopped with 1 trial open; to resume it: run_search\(\.\.\., resume=True\)"
        with pytest.raises(KeyboardInterrupt, match=fix):
            run_search(study_file, settings=settings, executor=InProcessExecutor())
    resolved = resolve(study_file, settings)
    (trial,) = resolved.open_proposals().list_outcomes()
    assert Checkpoints(resolved.checkpoint_root, trial.identity).read().record.position.tokens > 0
    resumed = run_search(study_file, settings=settings, executor=InProcessExecutor(), resume=True)
    assert (resumed.is_interrupted, resumed.open_trials) == (False, [])


def test_a_budget_that_the_trials_have_spent_is_named_where_repeats_are_left(
    study_file: Path, settings: Settings
) -> None:
    terms = {"budget.trials": 1, "budget.tokens": 900, "repeats.best": 1, "repeats.seeds": 3}
    cut = run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    assert cut.repeats == []
    assert cut.spent_budget is not None
    assert cut.spent_budget.startswith("budget.tokens ")
    assert cut.conclusion is not None
    larger = {**terms, "budget.tokens": 1_800}
    for _ in range(2):  # the repeat of the first counts for the second
        continued = run_search(
            study_file, larger, settings=settings, executor=InProcessExecutor(), resume=True
        )
        assert [repeat.state for repeat in continued.repeats] == [TrialState.COMPLETE]


def test_a_search_keeps_of_an_amount_what_its_repeats_need(study_file: Path, settings: Settings) -> None:
    terms = {
        "budget.trials": 20,
        "budget.tokens": 4 * 900,
        "repeats.best": 1,
        "repeats.seeds": 3,
        "early_stopping.kind": "none",
    }
    result = run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    assert [outcome.state for outcome in result.outcomes] == [TrialState.COMPLETE] * 2
    assert [repeat.state for repeat in result.repeats] == [TrialState.COMPLETE] * 2
    room = "budget.tokens has room for new trials up to 1,800 of 3,600 tokens"
    assert result.spent_budget == f"{room}; the rest is for complete trials and repeats"
    larger = {**terms, "budget.tokens": 6 * 900}  # of which half, without the repeats that ended, is kept
    more = run_search(study_file, larger, settings=settings, executor=InProcessExecutor(), resume=True)
    assert len(more.outcomes) > 2


@pytest.mark.parametrize("limit", [{"budget.target": 1e6}, {"budget.no_improvement": 1}])
def test_a_search_that_has_found_enough_repeats_its_best(
    study_file: Path, settings: Settings, limit: dict[str, float]
) -> None:
    one_report = {"training.report_every": 900}
    terms = {"budget.trials": 20, "repeats.best": 1, "repeats.seeds": 2, **one_report, **limit}
    result = run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    assert len(result.outcomes) < 20
    assert [repeat.state for repeat in result.repeats] == [TrialState.COMPLETE]
    assert not result.is_interrupted
    assert result.spent_budget is not None
    assert result.spent_budget.startswith(f"{next(iter(limit))} is reached")


def test_repeats_of_earlier_drivers_count_before_another_trial_starts(
    study_file: Path, settings: Settings
) -> None:
    terms = {"budget.trials": 1, "budget.tokens": 1_800, "repeats.best": 1, "repeats.seeds": 2}
    first = run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    assert len(first.repeats) == 1
    more = {**terms, "budget.trials": 2}
    again = run_search(study_file, more, settings=settings, executor=InProcessExecutor(), resume=True)
    assert len(again.outcomes) == 1
    assert again.spent_budget is not None
    assert again.spent_budget.startswith("budget.tokens ")


def test_a_better_configuration_of_a_longer_study_is_repeated(study_file: Path, settings: Settings) -> None:
    terms = {"budget.trials": 1, "repeats.best": 1, "repeats.seeds": 2}
    first = run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    more = {**terms, "budget.trials": 2}
    for _ in range(2):  # nothing is left to a third driver
        again = run_search(study_file, more, settings=settings, executor=InProcessExecutor(), resume=True)
        before, best = again.outcomes
        assert best.value is not None
        assert before.value is not None
        assert best.value < before.value, "the second trial is better"
        known, new = again.repeats
        assert [known] == first.repeats
        assert new.configuration == {**best.configuration, "seed": 1}
        names = {row.name for row in show_study(again.resolved.id, settings).trials}
        assert names == {"lstm #0", "lstm #1", "lstm #0 seed 1", "lstm #1 seed 1"}


def test_a_resumed_study_may_have_more_repeats(study_file: Path, settings: Settings) -> None:
    terms: dict[str, int | str] = {"budget.trials": 2, "repeats.best": 1, "early_stopping.kind": "none"}
    added: list[tuple[dict[str, int], set[str]]] = [
        ({"repeats.seeds": 2}, {"lstm #0", "lstm #1", "lstm #1 seed 1"}),
        ({"repeats.seeds": 2}, set()),
        ({"repeats.seeds": 3}, {"lstm #1 seed 2"}),
        ({"repeats.seeds": 2, "repeats.best": 2}, {"lstm #0 seed 1"}),
    ]
    expected: set[str] = set()
    for number, (change, names) in enumerate(added):
        again = run_search(
            study_file,
            {**terms, **change},
            settings=settings,
            executor=InProcessExecutor(),
            resume=number > 0,
        )
        expected |= names
        assert {row.name for row in show_study(again.resolved.id, settings).trials} == expected
        assert {repeat.state for repeat in again.repeats} == {TrialState.COMPLETE}


class SignalledAtTheEnd(InProcessExecutor):
    """Sends SIGTERM to this process when the last trial has ended."""

    def run_trials(self, run: ExecutorRun) -> None:
        super().run_trials(run)
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_after_the_last_trial_leaves_the_repeats_and_the_conclusion_to_a_resume(
    study_file: Path, settings: Settings
) -> None:
    terms = {"budget.trials": 1, "repeats.best": 1, "repeats.seeds": 2}
    cut = run_search(study_file, terms, settings=settings, executor=SignalledAtTheEnd())
    assert (cut.is_interrupted, cut.repeats, cut.conclusion) == (True, [], None)
    resumed = run_search(study_file, terms, settings=settings, executor=InProcessExecutor(), resume=True)
    assert len(resumed.repeats) == 1
    assert resumed.conclusion is not None


class MortalExecutor(InProcessExecutor):
    """Dies a number of times, each time in the middle of a trial, before a report or after one."""

    def __init__(self, deaths: int, reports: int, *, can_restart: bool = True) -> None:
        self._deaths, self._reports, self._can_restart = deaths, reports, can_restart

    def run_trials(self, run: ExecutorRun) -> None:
        if self._deaths == 0:
            super().run_trials(run)
            return
        self._deaths -= 1
        trial = run.director.take_next_trial()
        assert trial is not None
        worker, number = TrialWorker(run.make_assignment(trial)), trial.proposal.number
        run.director.on_started(number)
        for _ in range(self._reports):
            run.director.on_worker_report(number, worker.step(lambda: False))
        raise ExecutorLostError("the executor has died", can_restart=self._can_restart)


def test_a_study_resumes_by_itself_where_what_runs_its_trials_dies_and_can_start_again(
    study_file: Path, settings: Settings, tmp_path: Path, empty_store: Path
) -> None:
    result = run_search(study_file, settings=settings, executor=MortalExecutor(2, reports=1))
    assert (result.is_interrupted, result.executor_loss, len(result.outcomes)) == (False, None, 4)
    undisturbed = run_search(
        study_file,
        settings=relocate(settings, tmp_path / "undisturbed", empty_store),
        executor=InProcessExecutor(),
    )
    assert read_curves(result) == read_curves(undisturbed)
    assert read_recorded_curves(result, settings) == read_curves(result)


@pytest.mark.parametrize(("deaths", "can_restart"), [(2, True), (1, False)])
def test_a_study_stays_open_where_what_runs_its_trials_dies_without_progress_or_for_good(
    study_file: Path, settings: Settings, deaths: int, can_restart: bool
) -> None:
    executor = MortalExecutor(deaths, reports=0, can_restart=can_restart)
    result = run_search(study_file, settings=settings, executor=executor)
    assert result.is_interrupted
    assert str(result.executor_loss) == "the executor has died"
    assert [outcome.state for outcome in result.outcomes] == [TrialState.RUNNING]
    assert result.conclusion is None
    resumed = run_search(study_file, settings=settings, executor=executor, resume=True)
    assert (len(resumed.outcomes), resumed.open_trials, resumed.is_interrupted) == (4, [], False)


def lengthen_trials(study_file: Path, trials: int = 2) -> None:
    """Give each trial one report, after about 50 steps."""
    text = study_file.read_text().replace("tokens = 900", "tokens = 5_000").replace("= 300", "= 5_000")
    study_file.write_text(text.replace("trials = 4", f"trials = {trials}"))


class SignallingStop(StopRequest):
    """A stop request that sends a signal to this process when it was asked 15 times."""

    number, asks = signal.SIGTERM, 0

    @property
    def is_set(self) -> bool:
        self.asks += 1
        if self.asks == 15:
            signal.raise_signal(self.number)
        return super().is_set


class InterruptingStop(SignallingStop):
    """The same with the signal of Ctrl-C."""

    number = signal.SIGINT


def run_interrupted(study_file: Path, settings: Settings, resume: bool) -> SearchResult:
    """Run the study, and interrupt it after 15 steps of training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_run, "StopRequest", SignallingStop)
        return run_search(study_file, settings=settings, executor=InProcessExecutor(), resume=resume)


def relocate(settings: Settings, folder: Path, store: Path) -> Settings:
    """The settings with other locations of studies and a copy of MLflow's `store`, and the same corpora."""
    folder.mkdir()
    shutil.copyfile(store, folder / "mlflow.db")
    return settings.model_copy(
        update={
            "studies_folder": str(folder / "studies"),
            "study_database": f"journal:///{folder}/proposals.log",
            "tracking_uri": f"sqlite:///{folder}/mlflow.db",
        }
    )


def read_curves(result: StudyResult) -> dict[str, dict[int, float]]:
    """Each trial's curve in Optuna's storage, by identity."""
    return {outcome.identity: outcome.curve for outcome in result.outcomes}


def read_recorded_curves(result: StudyResult, settings: Settings) -> dict[str, dict[int, float]]:
    """Each trial's curve in MLflow, by identity."""
    client = MlflowClient(settings.tracking_uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, "tags.`memtune.role` = 'trial'")
    return {
        run.data.tags["memtune.trial"]: {
            metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "valid_loss")
        }
        for run in runs
    }


def test_resuming_a_study_that_never_began_is_refused(study_file: Path, settings: Settings) -> None:
    with pytest.raises(StudyError, match="start it without --resume"):
        run_search(study_file, resume=True, settings=settings)


@pytest.mark.parametrize("stored", ["nothing", "its terms"])
def test_a_resumed_job_starts_a_study_of_which_nothing_is_trained(
    stored: str, study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job may have failed before the first trial."""
    if stored == "its terms":
        resolve(study_file, settings).store_terms()
    monkeypatch.setenv(RESUMED_VARIABLE, "layers-3f9a1c")
    terms, executor = {"budget.trials": 1}, InProcessExecutor()
    started = run_search(study_file, terms, settings=settings, executor=executor, resume=True)
    assert len(started.outcomes) == 1


def test_a_resumed_job_starts_no_study_whose_trials_are_lost(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = resolve(study_file, settings)
    Folder.open(resolved.checkpoint_root).write_json("trial.json", {})
    monkeypatch.setenv(RESUMED_VARIABLE, "layers-3f9a1c")
    with pytest.raises(StudyError, match="restore it, or start it without --resume"):
        run_search(study_file, settings=settings, executor=InProcessExecutor(), resume=True)


def test_a_resumed_job_starts_no_study_whose_terms_have_changed(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(study_file, settings).store_terms()
    monkeypatch.setenv(RESUMED_VARIABLE, "layers-3f9a1c")
    changed = {"training.tokens": 600}
    with pytest.raises(StudyError, match="changed since study layers-"):
        run_search(study_file, changed, settings=settings, executor=InProcessExecutor(), resume=True)
