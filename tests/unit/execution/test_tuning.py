"""What trials ask Ray for, and what is heard of them when a search ends."""

from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
from ray.tune.execution import class_cache

from memtune.execution.assignment import Assignment
from memtune.execution.attendance import Attendance
from memtune.execution.director import Director
from memtune.execution.trial import TrialActor
from memtune.execution.tuning import Conductor, DirectedCallback
from memtune.training import TrialConfig

CONFIG = {"model": {"family": "lstm", "width": 4}, "training": {"tokens": 900}}


def test_a_trial_wants_no_environment_of_its_own_so_that_a_worker_in_store_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray starts a new worker, which takes seconds, for an environment that none in store has."""
    for name in class_cache.ENV_VARS_TO_PROPAGATE:
        monkeypatch.delenv(name, raising=False)
    actor = class_cache._ActorClassCache().get(TrialActor)
    assert not actor._default_options["runtime_env"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_worker_that_is_ended_with_its_search_is_not_held_against_its_trial(ended: bool) -> None:
    assignment = Assignment(
        number=3,
        identity="0123456789abcdef",
        config=TrialConfig.model_validate(CONFIG),
        corpus="tiny",
        corpus_digest="0" * 64,
        store="store",
        checkpoints="checkpoints",
    )
    trial = SimpleNamespace(config={"assignment": assignment.model_dump_json()}, error_file=None)
    director = create_autospec(Director, instance=True)
    callback = DirectedCallback(Conductor(director), Attendance(60.0))
    if ended:
        callback.end_workers()
    callback.on_trial_recover(0, [trial], trial)
    callback.on_trial_error(0, [trial], trial)
    assert (director.waits.called, director.crashed.called) == (not ended, not ended)
