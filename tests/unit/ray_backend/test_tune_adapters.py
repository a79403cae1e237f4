"""Tune's callback and searcher: ends of workers with their search, and the end of a search."""

from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher
from ray.tune.utils import flatten_dict

from memtune.ray_backend.cluster_nodes import SlotPlanner
from memtune.ray_backend.stop_notice import StopNotice
from memtune.ray_backend.tune_adapters import (
    DirectedCallback,
    DirectedScheduler,
    DirectedSearcher,
    DirectorHandle,
    RunStopper,
)
from memtune.studies.assignment import Assignment
from memtune.studies.director import Director
from memtune.studies.heartbeat_monitor import HeartbeatMonitor
from memtune.studies.stop_request import StopRequest
from memtune.studies.trial_worker import WorkerReport
from memtune.training import TrialConfig

CONFIG = {"model": {"family": "lstm", "width": 4}, "training": {"tokens": 900}}


class LocalNotice(StopNotice):
    """A notice without a Ray cluster."""

    def publish(self) -> None:
        """Send nothing."""


def make_tune_trial() -> SimpleNamespace:
    """Tune's trial of trial 3."""
    assignment = Assignment(
        number=3,
        identity="0123456789abcdef",
        config=TrialConfig.model_validate(CONFIG),
        corpus="tiny",
        corpus_digest="0" * 64,
        corpus_store="store",
        checkpoint_root="checkpoints",
    )
    return SimpleNamespace(config={"assignment": assignment.model_dump_json()}, error_file=None)


@pytest.mark.parametrize("ended", [False, True])
def test_the_end_of_a_worker_with_its_search_is_not_a_failure_of_its_trial(ended: bool) -> None:
    trial = make_tune_trial()
    director = create_autospec(Director, instance=True)
    handle = DirectorHandle(director, stop=StopRequest(lambda: ended))
    stopper = RunStopper()
    callback = DirectedCallback(
        handle, create_autospec(SlotPlanner, instance=True), HeartbeatMonitor(60.0), LocalNotice(), stopper
    )
    callback.on_step_begin(0, [])
    assert stopper.stop_all() == ended
    callback.on_trial_recover(0, [trial], trial)
    callback.on_trial_error(0, [trial], trial)
    assert (director.on_worker_lost.called, director.on_crashed.called) == (not ended, not ended)


@pytest.mark.parametrize("continues", [False, True])
def test_a_trial_ends_with_the_report_at_which_its_study_ends_it(continues: bool) -> None:
    """Tune flattens what the scheduler gets."""
    report = WorkerReport(tokens=300, remarks=("one",))
    director = create_autospec(Director, instance=True)
    director.on_worker_report.return_value = continues
    scheduler = DirectedScheduler(DirectorHandle(director))
    result = flatten_dict({"report": report.model_dump_json(), "config": {"a": 1}})
    decision = scheduler.on_trial_result(None, make_tune_trial(), result)
    assert decision == (TrialScheduler.CONTINUE if continues else TrialScheduler.STOP)
    director.on_worker_report.assert_called_once_with(3, report)


@pytest.mark.parametrize("may_resume_later", [False, True])
def test_the_search_is_finished_once_no_paused_trial_may_continue(may_resume_later: bool) -> None:
    director = create_autospec(Director, instance=True)
    director.take_next_trial.return_value = None
    director.may_resume_later = may_resume_later
    handle = DirectorHandle(director, create_autospec(lambda trial: None))
    searcher = DirectedSearcher(handle, create_autospec(SlotPlanner, instance=True), "stop")
    assert searcher.suggest("a") == (None if may_resume_later else Searcher.FINISHED)
