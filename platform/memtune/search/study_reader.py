"""Reads and deletes the studies of a storage, without their spaces and without a driver's lease."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from memtune.errors import StudyError, did_you_mean
from memtune.search import trial_store
from memtune.search.compatibility import read_attributes
from memtune.search.database.outage_buffer import convert_outage_errors
from memtune.search.database.study_database import has_study_database, open_study_database, redact_url
from memtune.search.importance import ParameterImportance, rank_parameters
from memtune.search.trial_store import StoredTrial

REPEATS_SUFFIX = "-repeats"
"""A study's repeats are a separate Optuna study with this suffix."""
DRIVERS_SUFFIX = ".drivers"


@dataclass(frozen=True)
class StoredStudy:
    """A study as its storage holds it now."""

    id: str
    outcomes: list[StoredTrial]
    repeats: list[StoredTrial]
    seconds: float
    """Wall-clock seconds that drivers have run it."""
    last_activity: datetime | None
    """When a trial last started or ended, in local time."""
    searched: Sequence[FrozenTrial] = ()
    """The trials, without repeats, as Optuna has them."""

    @property
    def trials(self) -> list[StoredTrial]:
        """The trials, then their repeats."""
        return [*self.outcomes, *self.repeats]

    @property
    def refused(self) -> list[StoredTrial]:
        """The samples that were refused, each with the reason as its remark."""
        keys = {trial_store.REFUSAL_KEY, trial_store.IDENTITY_KEY}
        return [trial_store.read_outcome(trial) for trial in self.searched if keys <= trial.user_attrs.keys()]

    def rank_parameters(self) -> list[ParameterImportance]:
        """The parameters of the study, the most important first; empty below ten trials with a value."""
        return rank_parameters(self.searched)


@dataclass(frozen=True)
class CompleteTrial:
    """A complete trial, without its curve and its configuration."""

    study: str
    number: int
    identity: str
    tokens: int | None
    """The length of its training, where tokens end it."""
    is_repeat: bool


class StudyReader:
    """The studies of one storage."""

    def __init__(self, storage_url: str) -> None:
        """Raises StorageError when the storage cannot be opened."""
        self._url, self._redacted_url = storage_url, redact_url(storage_url)
        self._opened = open_study_database(storage_url) if has_study_database(storage_url) else None

    @property
    def _storage(self) -> BaseStorage:
        """The storage; while its file is missing, an empty one in memory, because a read creates no file."""
        if self._opened is None and has_study_database(self._url):
            self._opened = open_study_database(self._url)
        return self._opened or InMemoryStorage()

    def list_ids(self) -> list[str]:
        """The ids of all studies, oldest first."""
        with convert_outage_errors(self._redacted_url):
            names = [study.study_name for study in self._storage.get_all_studies()]
        return [name for name in names if not name.endswith((DRIVERS_SUFFIX, REPEATS_SUFFIX))]

    def has_begun(self, study: str) -> bool:
        """Whether a driver has started a trial of a study or spent time on it; False for an unknown id.

        A study is stored before its first trial, so one whose start failed or was killed has nothing else.
        """
        with convert_outage_errors(self._redacted_url):
            if trial_store.select_started(self._list_trials(study)):
                return True
            try:
                return trial_store.read_seconds_spent(self._read_attributes(study)) > 0
            except KeyError:
                return False

    def read(self, study: str) -> StoredStudy:
        """A study with its repeats. Raises StudyError for an unknown id, or trials of another version."""
        known = self.list_ids()
        if study not in known:
            raise StudyError(f'no study "{study}" in {self._redacted_url}; {did_you_mean(study, known)}')
        with convert_outage_errors(self._redacted_url):
            trials, repeats = self._list_trials(study), self._list_trials(f"{study}{REPEATS_SUFFIX}")
            attributes = self._read_attributes(study)
        trial_store.check_format(attributes, study)
        pairs = [(trial.datetime_start, trial.datetime_complete) for trial in [*trials, *repeats]]
        times = [time for pair in pairs for time in pair if time is not None]
        try:
            return StoredStudy(
                study,
                trial_store.read_started(trials),
                trial_store.read_started(repeats),
                trial_store.read_seconds_spent(attributes),
                max(times, default=None),
                trials,
            )
        except StudyError as error:
            raise StudyError(f"study {study}: {error}") from None

    def list_complete(self) -> list[CompleteTrial]:
        """The complete trials of all studies, and then their repeats."""
        keys = trial_store.IDENTITY_KEY, trial_store.CONFIGURATION_KEY
        with convert_outage_errors(self._redacted_url):
            found = [
                CompleteTrial(
                    name.removesuffix(REPEATS_SUFFIX),
                    number,
                    identity,
                    (configuration.get("training") or {}).get("tokens"),
                    name.endswith(REPEATS_SUFFIX),
                )
                for name, number, identity, configuration in read_attributes(
                    self._storage, OptunaState.COMPLETE, *keys
                )
            ]
        return sorted(found, key=lambda trial: trial.is_repeat)

    def list_trained_identities(self) -> set[str]:
        """The identities of the ended trials of all studies, repeats included."""
        key, states = trial_store.IDENTITY_KEY, (OptunaState.COMPLETE, OptunaState.PRUNED, OptunaState.FAIL)
        with convert_outage_errors(self._redacted_url):
            found = [each for state in states for each in read_attributes(self._storage, state, key, key)]
        return {identity for _, _, identity, _ in found}

    def list_repeats(self, study: str) -> list[StoredTrial]:
        """The repeats of a study that were started; none for an unknown id."""
        with convert_outage_errors(self._redacted_url):
            return trial_store.read_started(self._list_trials(f"{study}{REPEATS_SUFFIX}"))

    def delete(self, study: str) -> None:
        """Delete a study and its repeats; the queue of its drivers stays, because its lease is held."""
        with convert_outage_errors(self._redacted_url):
            for name in (study, f"{study}{REPEATS_SUFFIX}"):
                if name in {found.study_name for found in self._storage.get_all_studies()}:
                    self._storage.delete_study(self._storage.get_study_id_from_name(name))

    def _read_attributes(self, study: str) -> dict[str, Any]:
        return self._storage.get_study_user_attrs(self._storage.get_study_id_from_name(study))

    def _list_trials(self, name: str) -> list[FrozenTrial]:
        try:
            return self._storage.get_all_trials(self._storage.get_study_id_from_name(name), deepcopy=False)
        except KeyError:
            return []
