"""Tune's callback, searcher and stopper: ends of workers with their search, and the end of a search."""

from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
from ray.tune.search import Searcher

from memtune.ray_backend.cluster_nodes import SlotPlanner
from memtune.ray_backend.node_watch import NodeWatch
from memtune.ray_backend.trial_actor import StopNotice
from memtune.ray_backend.tune_adapters import (
    DirectedCallback,
    DirectedSearcher,
    DirectedStopper,
    RunHandle,
)
from memtune.studies.definition.study_terms import Resources
from memtune.studies.director import Director
from memtune.studies.executor import ExecutorRun, StopRequest
from memtune.studies.trial_worker import WorkerReport


class LocalNotice(StopNotice):
    """A notice without a Ray cluster."""

    def publish(self) -> None:
        """Send nothing."""


TUNE_TRIAL = SimpleNamespace(trial_id="a", config={"number": 3}, error_file=None)


def make_handle(director, *, is_stopping: bool = False) -> RunHandle:
    """A handle of a run that may be stopping."""
    stop, make_assignment = StopRequest(lambda: is_stopping), create_autospec(lambda trial: None)
    run = ExecutorRun(director, make_assignment, Resources(), 0.0, stop)
    watch, slots = create_autospec(NodeWatch, instance=True), create_autospec(SlotPlanner, instance=True)
    return RunHandle(run, watch, slots, LocalNotice())


def make_result(report: WorkerReport) -> dict[str, object]:
    """Tune's result of a report of trial 3."""
    return {"config": {"number": 3}, "report": report.model_dump_json()}


@pytest.mark.parametrize("ended", [False, True])
def test_the_end_of_a_worker_with_its_search_is_not_a_failure_of_its_trial(ended: bool) -> None:
    director, trial = create_autospec(Director, instance=True), TUNE_TRIAL
    handle = make_handle(director, is_stopping=ended)
    callback = DirectedCallback(handle)
    callback.on_step_begin(0, [])
    assert DirectedStopper(handle).stop_all() == ended
    callback.on_trial_recover(0, [trial], trial)
    callback.on_trial_error(0, [trial], trial)
    assert (director.on_worker_lost.called, director.on_crashed.called) == (not ended, not ended)


@pytest.mark.parametrize("continues", [False, True])
def test_a_trial_ends_with_the_report_at_which_its_study_ends_it(continues: bool) -> None:
    report = WorkerReport(tokens=300, remarks=("one",))
    director = create_autospec(Director, instance=True)
    director.on_worker_report.return_value = continues
    ends = DirectedStopper(make_handle(director))("a", make_result(report))
    assert ends is not continues
    director.on_worker_report.assert_called_once_with(3, report)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_stop_of_the_run_leaves_a_trial_open_unless_its_worker_is_done(is_finished: bool) -> None:
    director = create_autospec(Director, instance=True)
    director.on_worker_report.return_value = True
    handle = make_handle(director, is_stopping=True)
    report = WorkerReport(tokens=300, is_finished=is_finished)
    ends = DirectedStopper(handle)("a", make_result(report))
    assert (ends, handle.cut_off) == ((False, set()) if is_finished else (True, {3}))


@pytest.mark.parametrize("may_start_later", [False, True])
def test_the_search_is_finished_once_no_paused_trial_may_continue(may_start_later: bool) -> None:
    director = create_autospec(Director, instance=True)
    director.take_next_trial.return_value = None
    director.may_start_later = may_start_later
    searcher = DirectedSearcher(make_handle(director))
    assert searcher.suggest("a") == (None if may_start_later else Searcher.FINISHED)
