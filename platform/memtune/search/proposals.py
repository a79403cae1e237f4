"""The interface to a study's trials: ask for a configuration, report values, end the trial.

One Optuna study holds all of it, so a driver that resumes a study finds in its storage the sampled
parameters, the configuration, the trial's identity, the curve and the reason of its end. The driver is the
study's only writer. While the storage is unavailable, an outage buffer keeps what trials report.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from optuna.trial import TrialState as OptunaState

from memtune.search import trial_store
from memtune.search.database.outage_buffer import OutageBuffer, StorageUnavailableError, convert_outage_errors
from memtune.search.database.study_database import open_study_database, redact_url
from memtune.search.proposer import Candidates, Proposer
from memtune.search.stored_trials import StoredTrial
from memtune.search.trial_store import TrialStore
from memtune.spaces import Scalar
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.usage import Usage


class Proposals:
    """The trials of one study, found again under the same name in the same storage.

    Methods that read raise StorageUnavailableError when the storage stays unavailable.
    """

    def __init__(
        self,
        storage_url: str,
        study_name: str,
        candidates: Candidates,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """`guard` is called before every write. It raises when this driver must not write any more."""
        storage, redacted_url = open_study_database(storage_url), redact_url(storage_url)
        self._buffer = OutageBuffer(redacted_url)
        with convert_outage_errors(redacted_url):
            self._store = TrialStore(storage, study_name, guard)
            self._store.recover_interrupted()
            self._proposer = Proposer(self._store, candidates)

    def ask(self) -> StoredTrial | None:
        """The next trial to run, stored as running; None when nothing new is left to try.

        A sampled configuration that another trial of the study has is stored as a duplicate with the known
        result. A refused one is stored with the reason. Neither is returned, and neither counts.

        Raises StorageUnavailableError when the storage does not answer. A later call returns the proposal
        that this call would have returned.
        """
        return self._buffer.try_once(self._proposer.propose_next)

    def propose(self, parameters: Mapping[str, Scalar]) -> StoredTrial:
        """A trial with the given parameters, stored as running; the sampler draws those that are missing.

        Raises StudyError for a configuration that the study refuses or that one of its trials has.
        """
        return self._buffer.try_once(lambda: self._proposer.propose_given(parameters))

    def report(self, number: int, tokens: int, value: float) -> None:
        """Add a point to a running trial's curve; the first value at a number of tokens stays."""
        self._buffer.write(lambda is_retry: self._store.write_report(number, tokens, value))

    def store_usage(self, number: int, usage: Usage) -> None:
        """Store what a running trial has used so far."""
        stored = usage.model_dump(mode="json")
        self._buffer.write(lambda is_retry: self._store.write_usage(number, stored))

    def complete(self, number: int, value: float, end: TrialEnd | None = None) -> None:
        """End a trial with its final value; a value that is not finite is a failure."""
        if math.isfinite(value):
            self._end(number, OptunaState.COMPLETE, end, value=float(value))
        else:
            self.fail(number, TrialEnd(reason=StopReason.DIVERGED, detail=f"the objective is {value}"))

    def stop(self, number: int, end: TrialEnd, tokens: int | None = None, value: float | None = None) -> None:
        """Stop a trial before the end of its budget; the sampler learns from its curve.

        `tokens` and `value` are the report that decided it. They are stored together with the decision, so
        that a kill between two writes leaves no trial open that was to stop.
        """
        self._end(number, OptunaState.PRUNED, end, tokens=tokens, value=value)

    def pause(self, number: int, end: TrialEnd, tokens: int, value: float) -> None:
        """Pause a running trial at a report; the sampler learns from its curve so far."""
        stored = end.model_dump(mode="json")
        self._buffer.write(lambda is_retry: self._write_pause(number, stored, tokens, value))

    def resume(self, number: int) -> None:
        """Continue a paused trial."""
        self._buffer.write(lambda is_retry: self._store.write_resumption(number))

    def fail(self, number: int, end: TrialEnd) -> None:
        """End a failed trial; the sampler ignores it."""
        self._end(number, OptunaState.FAIL, end)

    def list_unfinished(self) -> list[StoredTrial]:
        """The running trials, which a later driver resumes."""
        return [outcome for outcome in self.list_outcomes() if outcome.state is TrialState.RUNNING]

    def list_paused(self) -> list[StoredTrial]:
        """The trials that the early-stopping rule has paused and may continue."""
        return [outcome for outcome in self.list_outcomes() if outcome.state is TrialState.PAUSED]

    def list_outcomes(self) -> list[StoredTrial]:
        """Every trial that was started, running ones included: what a budget of trials counts."""
        started = trial_store.select_started(self._buffer.retry_until(self._store.list_asked))
        return [trial_store.read_outcome(trial) for trial in started]

    def list_finished(self) -> list[StoredTrial]:
        """Every trial that has ended or is paused."""
        return [outcome for outcome in self.list_outcomes() if outcome.state.has_ended_or_paused]

    def check(self) -> None:
        """Raise StudyError when this driver lost the study or its storage was deleted.

        An executor calls this regularly, because trials may train for hours between two reports. An
        unavailable storage is not an error here.
        """
        with suppress(StorageUnavailableError):
            self._buffer.try_once(self._store.check)

    def flush(self) -> None:
        """Wait until the storage has every write; raises what the guard raises."""
        self._buffer.retry_until(self._store.guard)

    def read_seconds_spent(self) -> float:
        """Wall-clock seconds that all drivers have run this study, as last stored."""
        return self._buffer.retry_until(self._store.read_seconds_spent)

    def store_seconds_spent(self, seconds: float) -> None:
        """Store the seconds spent, those of earlier drivers included, unless the storage is unavailable."""
        with suppress(StorageUnavailableError):
            self._buffer.try_once(lambda: self._store.write_seconds_spent(seconds))

    def _end(self, number: int, state: OptunaState, end: TrialEnd | None, **fields: float | None) -> None:
        stored = {"state": state.name, "end": end and end.model_dump(mode="json"), **fields}
        self._buffer.write(lambda is_retry: self._write_end(number, stored, is_retry))

    def _write_pause(self, number: int, end: dict[str, Any], tokens: int, value: float) -> None:
        self._store.write_pause(number, end, tokens, value)
        self._proposer.update_trial(number)

    def _write_end(self, number: int, ending: dict[str, Any], is_retry: bool) -> None:
        self._store.write_end(number, ending, is_retry)
        self._proposer.update_trial(number)
