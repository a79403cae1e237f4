"""Behaviour of Optuna that its documentation does not promise, seen in version 5.0.0.

Each entry has its reason here and a test in tests/unit/search/test_compatibility.py that fails when Optuna
changes. The rest of the package uses documented names only, and these methods of `BaseStorage`, which Optuna
documents for authors of storages: `create_new_trial`, `get_all_trials`, `get_study_id_from_name`,
`get_study_user_attrs`, `get_trial`, `get_trial_id_from_study_id_trial_number`,
`set_trial_intermediate_value`, `set_trial_state_values`, `set_trial_user_attr`. `Study` and `Trial` offer no
write that can be repeated after a lost answer, and these methods do.
"""

import json
import logging
import os
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState
from sqlalchemy import text

WAIT_MESSAGE_SECONDS = 5.0
WAIT_MESSAGE = (
    "%s.lock keeps the journal of studies locked: another process writes to it, or was killed while it "
    "wrote; a lock without a write for %d s is removed"
)

log = logging.getLogger(__name__)
# Its message about a lock, every ten seconds, says less than `WAIT_MESSAGE`.
logging.getLogger(JournalFileSymlinkLock.__module__).setLevel(logging.ERROR)


class RestrictedStudy:
    """A study that shows a sampler the given trials only.

    Reason: a sampler reads every trial at every ask, so the time per proposal grows with the study. The
    samplers read through the private `Study._get_trials`. `get_trials` and `trials` give the same, so that a
    sampler that reads through the public names still sees these trials only. With several objectives it says
    so to the samplers, through the private `Study._is_multi_objective` too; the stored study has one.
    Fallback: the public names.
    """

    def __init__(self, study: optuna.Study, trials: Sequence[FrozenTrial], objectives: int = 1) -> None:
        """`objectives` are minimised; the trials have a value of each."""
        self._study, self._trials, self._objectives = study, trials, objectives

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    @property
    def directions(self) -> list[optuna.study.StudyDirection]:
        """Every objective is minimised."""
        return [optuna.study.StudyDirection.MINIMIZE] * self._objectives

    def _is_multi_objective(self) -> bool:
        return self._objectives > 1

    @property
    def trials(self) -> list[FrozenTrial]:
        """The given trials."""
        return list(self._trials)

    def get_trials(
        self, deepcopy: bool = True, states: Container[OptunaState] | None = None
    ) -> list[FrozenTrial]:
        """The given trials in these states. They are not copied: samplers do not change them."""
        return [trial for trial in self._trials if states is None or trial.state in states]

    def _get_trials(
        self, deepcopy: bool = False, states: Container[OptunaState] | None = None, use_cache: bool = True
    ) -> list[FrozenTrial]:
        return self.get_trials(deepcopy, states)


def read_enqueued(trial: FrozenTrial) -> dict[str, Any]:
    """The parameters with which a trial was enqueued; a sampler draws the others.

    Reason: a sampler draws the parameters of the branches that these choose, and Optuna keeps them under a
    system attribute. Fallback: none are known, and those parameters are drawn independently.
    """
    return dict(trial.system_attrs.get("fixed_params", {}))


def add_read_cache(database: optuna.storages.RDBStorage) -> optuna.storages.BaseStorage:
    """The database behind Optuna's cache, which reads ended trials once.

    Reason: without it each ask reads all trials from the database. `create_study` adds this cache to a URL,
    and to no storage object. The function that does so, `get_storage`, is importable and undocumented.
    """
    return optuna.storages.get_storage(database)


ATTRIBUTES_OF_TRIALS = """
SELECT studies.study_name, trials.number, one.value_json, other.value_json
FROM studies
JOIN trials ON trials.study_id = studies.study_id
JOIN trial_user_attributes AS one ON one.trial_id = trials.trial_id AND one.key = :one
JOIN trial_user_attributes AS other ON other.trial_id = trials.trial_id AND other.key = :other
WHERE trials.state = :state
ORDER BY trials.trial_id
"""


def read_attributes(
    storage: optuna.storages.BaseStorage, state: OptunaState, one: str, other: str
) -> Iterator[tuple[str, int, Any, Any]]:
    """Study, number and two attributes of every trial in a state that has both, within a study by number.

    Reason: `get_all_trials` makes objects of all values of all curves, milliseconds per trial, and the tables
    of Optuna's database are not documented. Fallback: `get_all_trials`, as for a journal, which is read
    whole.
    """
    engine = getattr(getattr(storage, "_backend", None), "engine", None)
    if engine is not None:
        named = {"state": state.name, "one": one, "other": other}
        with engine.connect() as connection:
            rows = connection.execute(text(ATTRIBUTES_OF_TRIALS), named)
            yield from ((name, number, json.loads(a), json.loads(b)) for name, number, a, b in rows)
        return
    for study in storage.get_all_studies():
        study_id = storage.get_study_id_from_name(study.study_name)
        for trial in storage.get_all_trials(study_id, deepcopy=False, states=(state,)):
            found = trial.user_attrs
            if {one, other} <= found.keys():
                yield study.study_name, trial.number, found[one], found[other]


class JournalLock(JournalFileSymlinkLock):
    """The lock of a journal file, which another process may have taken from its holder.

    Reason: Optuna gives a lock that is 30 s old to the next process, and the former holder's `release` then
    raises RuntimeError. No harm is done: what the former holder appends is a whole line. The lock is a
    symbolic link, because other locks do not work on network file systems. It does not name its holder, so
    one of a killed process costs the next one these 30 s. Fallback: `release` as it is; the guard test fails
    when it raises something else.
    """

    def __init__(self, path: str, prepare: Callable[[], object] = lambda: None) -> None:
        """`prepare` is called each time that the lock was acquired, before anything else."""
        super().__init__(path)
        self._path, self._prepare = path, prepare

    def acquire(self) -> bool:
        """Acquire the lock; says why where that takes long."""
        message = Timer(WAIT_MESSAGE_SECONDS, log.warning, [WAIT_MESSAGE, self._path, self.grace_period])
        message.daemon = True
        if os.path.islink(f"{self._path}.lock"):
            message.start()
        try:
            super().acquire()
        finally:
            message.cancel()
        try:
            self._prepare()
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        """Release the lock, unless another process has taken it."""
        with suppress(RuntimeError):
            super().release()


def forget_offsets(journal: JournalFileBackend, number: int) -> None:
    """Have a journal forget where its changes before a number begin.

    Reason: it keeps the place of every change, 2 kB of a trial, and reads on after the last one. Without the
    place of a change it reads from the first one, whose place stays. Fallback: it keeps them.
    """
    offsets: dict[int, int] = getattr(journal, "_log_number_offset", {})
    for earlier in [known for known in offsets if 0 < known < number]:
        del offsets[earlier]


def read_sampler_attributes(trial: FrozenTrial) -> dict[str, Any]:
    """What Optuna and its samplers have stored of a trial.

    Reason: `FrozenTrial.system_attrs` is not documented, and samplers keep their state nowhere else. There is
    no fallback: the guard test fails.
    """
    return trial.system_attrs


@contextmanager
def suppress_optuna_messages() -> Iterator[None]:
    """Suppress Optuna's messages below ERROR and its warnings about experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
