"""What search/compatibility.py assumes of Optuna; a failure here means that Optuna has changed."""

import inspect
import os
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import create_trial

from memtune.search.compatibility import (
    RestrictedStudy,
    add_read_cache,
    forget_offsets,
    read_attributes,
    read_enqueued,
    read_sampler_attributes,
)

SAMPLERS = {
    "random": lambda: optuna.samplers.RandomSampler(seed=0),
    "tpe": lambda: optuna.samplers.TPESampler(seed=0, n_startup_trials=1),
}
STORAGE_METHODS = {
    "create_new_trial": ["study_id"],
    "get_all_trials": ["study_id", "deepcopy", "states"],
    "get_study_id_from_name": ["study_name"],
    "get_study_user_attrs": ["study_id"],
    "get_trial": ["trial_id"],
    "get_trial_id_from_study_id_trial_number": ["study_id", "trial_number"],
    "set_trial_intermediate_value": ["trial_id", "step", "intermediate_value"],
    "set_trial_state_values": ["trial_id", "state"],
    "set_trial_user_attr": ["trial_id", "key", "value"],
}


@pytest.mark.parametrize("name", STORAGE_METHODS)
def test_storages_have_the_methods_that_are_called(name: str) -> None:
    parameters = list(inspect.signature(getattr(optuna.storages.BaseStorage, name)).parameters)
    assert parameters[1 : len(STORAGE_METHODS[name]) + 1] == STORAGE_METHODS[name]


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_the_attributes_of_trials_in_a_state_are_read_without_curves(kind: str, tmp_path: Path) -> None:
    if kind == "sqlite":
        storage = add_read_cache(optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/studies.db"))
    else:
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(tmp_path / "journal")))
    for name in ("first", "second"):
        study = optuna.create_study(storage=storage, study_name=name)
        study.add_trial(create_trial(state=optuna.trial.TrialState.FAIL, user_attrs={"a": 1, "b": {}}))
        study.add_trial(create_trial(value=0.5, user_attrs={"a": "x", "b": {"c": [1]}}))
        study.add_trial(create_trial(value=0.5, user_attrs={"a": "x"}))
    with pytest.MonkeyPatch.context() as patch:
        if kind == "sqlite":
            patch.setattr(type(storage), "get_all_trials", None)
        read = list(read_attributes(storage, optuna.trial.TrialState.COMPLETE, "a", "b"))
    assert read == [("first", 1, "x", {"c": [1]}), ("second", 1, "x", {"c": [1]})]


def test_tpe_reads_trials_through_the_restricted_study_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study itself has no trial, so TPE learns from the given trials or from none."""
    study = optuna.create_study()
    distribution = optuna.distributions.FloatDistribution(0.0, 1.0)
    given = [
        create_trial(value=rate, params={"rate": rate}, distributions={"rate": distribution})
        for rate in (0.1, 0.2, 0.8, 0.9)
    ]
    for number, trial in enumerate(given):
        trial.number = number
    new = create_trial(state=optuna.trial.TrialState.RUNNING)
    restricted: Any = RestrictedStudy(study, given)
    space = SAMPLERS["tpe"]().infer_relative_search_space(restricted, new)
    assert space == {"rate": distribution}
    assert SAMPLERS["tpe"]().infer_relative_search_space(study, new) == {}


def test_a_sampler_sees_the_parameters_with_which_a_trial_was_enqueued() -> None:
    seen: list[dict[str, Any]] = []

    class Sampler(optuna.samplers.RandomSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            seen.append(read_enqueued(trial))
            return {}

    study = optuna.create_study(sampler=Sampler())
    study.enqueue_trial({"rate": 0.5, "kind": "sgd"})
    for _ in range(2):
        study.ask().suggest_float("width", 0.0, 1.0)
    assert seen == [{"rate": 0.5, "kind": "sgd"}, {}]


@pytest.mark.parametrize("count", [1, 2])
def test_a_restricted_study_says_how_many_objectives_it_has_as_a_study_does(count: int) -> None:
    study = optuna.create_study(directions=["minimize"] * count)
    restricted = RestrictedStudy(optuna.create_study(), [], count)
    assert restricted._is_multi_objective() == study._is_multi_objective()
    assert restricted.directions == study.directions


def test_the_public_names_give_the_restricted_trials_too() -> None:
    restricted = RestrictedStudy(optuna.create_study(), [trial := create_trial(value=1.0)])
    assert restricted.trials == restricted.get_trials() == [trial]
    for read in (restricted.get_trials, restricted._get_trials):
        assert read(states=(optuna.trial.TrialState.FAIL,)) == []
    assert restricted.direction is optuna.study.StudyDirection.MINIMIZE


def test_what_a_sampler_has_stored_of_a_trial_can_be_read() -> None:
    study = optuna.create_study()
    study.enqueue_trial({"rate": 0.5})
    study.ask()
    assert read_sampler_attributes(study.trials[0])["fixed_params"] == {"rate": 0.5}


def test_a_database_gets_the_cache_that_optuna_gives_to_urls(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    cached = add_read_cache(optuna.storages.RDBStorage(url))
    by_url = optuna.create_study(storage=url)._storage
    assert type(cached) is type(by_url)
    assert type(cached) is not optuna.storages.RDBStorage


def test_releasing_a_lock_that_was_taken_raises_a_runtime_error(tmp_path) -> None:
    lock = JournalFileSymlinkLock(str(tmp_path / "journal"))
    lock.acquire()
    os.unlink(tmp_path / "journal.lock")
    with pytest.raises(RuntimeError):
        lock.release()


def test_a_journal_reads_on_without_the_places_of_earlier_changes(tmp_path: Path) -> None:
    journal = JournalFileBackend(str(tmp_path / "study.log"))
    journal.append_logs([{"change": number} for number in range(9)])
    assert len(list(journal.read_logs(0))) == 9
    forget_offsets(journal, 9)
    assert list(vars(journal)["_log_number_offset"]) == [0, 9]
    journal.append_logs([{"change": 9}])
    assert list(journal.read_logs(9)) == [{"change": 9}]
    assert [log["change"] for log in journal.read_logs(5)] == [5, 6, 7, 8, 9]
