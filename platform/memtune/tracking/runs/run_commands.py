"""The recorder's commands as values on their way to the store, and the tags by which runs are found.

A command carries itself out on a RunActions, so a new command touches no code that queues or retries.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from memtune.objective import Objective
from memtune.tracking.runs.run_entries import CorpusInput
from memtune.trial_state import TrialEnd, TrialState

__all__ = [
    "NO_STUDY",
    "Command",
    "DrawCurve",
    "EndRun",
    "LogReport",
    "ReconcileRuns",
    "RunActions",
    "RunKey",
    "StartRun",
    "WriteFiles",
    "best_metric_name",
]

NO_STUDY = "alone"
"""The study under which trials without a study are recorded."""
STUDY_TAG = "memtune.study"
TRIAL_TAG = "memtune.trial"
ROLE_TAG = "memtune.role"
STATE_TAG = "memtune.state"
STOP_REASON_TAG = "memtune.stop_reason"
REASON_TAG = "memtune.reason"
OBJECTIVE_TAG = "memtune.objective"
STUDY_NAME_TAG = "memtune.name"
NUMBER_TAG = "memtune.number"
"""A trial's name within its study: its number, with the seed of a repeat."""
VALIDATED_TOKENS_TAG = "memtune.validated_tokens"
"""Of an ended trial: tokens at its last report with a validation."""
PARENT_TAG = "mlflow.parentRunId"


def best_metric_name(objective: Objective) -> str:
    """The metric that holds a run's best validation figure: MLflow's tables show a metric's last value."""
    return f"best_valid_{objective}"


@dataclass(frozen=True)
class RunKey:
    """The identity of a run: the study, and the trial's identity unless it is the study's run."""

    study: str
    trial: str | None = None

    def tags(self) -> dict[str, str]:
        """The tags by which the run is found again."""
        if self.trial is None:
            return {STUDY_TAG: self.study, ROLE_TAG: "study"}
        return {STUDY_TAG: self.study, ROLE_TAG: "trial", TRIAL_TAG: self.trial}


class Command(Protocol):
    """One change to a run. Repeating a command that failed half-way changes nothing twice."""

    def execute(self, actions: "RunActions", key: RunKey) -> None:
        """Carry the command out on the run of `key`. Raises what the store raises."""


@dataclass(frozen=True)
class StartRun:
    """A run's name, parameters and tags; `time_ms` in milliseconds since the epoch."""

    name: str
    time_ms: int
    parameters: dict[str, Any]
    tags: dict[str, str]
    dataset: CorpusInput | None = None
    max_tokens: int | None = None
    """Of a resumed trial: validations beyond these tokens are not in the study database and are dropped."""

    def execute(self, actions: "RunActions", key: RunKey) -> None:
        """Create or reopen the run."""
        actions.start_run(key, self)


@dataclass(frozen=True)
class LogReport:
    """One report of a trial, and when it arrived, in milliseconds since the epoch."""

    time_ms: int
    report: object

    def execute(self, actions: "RunActions", key: RunKey) -> None:
        """Log the report's numbers and texts."""
        actions.log_report(key, self)


@dataclass(frozen=True)
class WriteFiles:
    """Artifacts of a run: content by relative path."""

    contents: dict[str, bytes]

    def execute(self, actions: "RunActions", key: RunKey) -> None:
        """Store the files."""
        actions.write_files(key, self.contents)


@dataclass(frozen=True)
class DrawCurve:
    """The figures of a trial and its best validation value, from all reports so far."""

    def execute(self, actions: "RunActions", key: RunKey) -> None:
        """Draw and store the figures and the best value."""
        actions.draw_curve(key)


@dataclass(frozen=True)
class EndRun:
    """How and why a run ended, and when, in milliseconds since the epoch."""

    state: TrialState
    end: TrialEnd | None
    time_ms: int
    validated_tokens: int | None = None
    """Tokens at a trial's last report with a validation; None for a study and where it is not known."""

    def execute(self, actions: "RunActions", key: RunKey) -> None:
        """Set the run's final status."""
        actions.end_run(key, self)


@dataclass(frozen=True)
class ReconcileRuns:
    """The states of the trials that have ended according to the study database, by identity."""

    state_by_trial: dict[str, TrialState]
    time_ms: int

    def execute(self, actions: "RunActions", key: RunKey) -> None:
        """Make the store's runs agree with these states."""
        actions.reconcile(key, self)


class RunActions(Protocol):
    """What commands need of the store."""

    def start_run(self, key: RunKey, command: StartRun) -> None:
        """Create the run, or reopen the run of this key."""

    def log_report(self, key: RunKey, command: LogReport) -> None:
        """Log the numbers and texts of a report that the store does not hold."""

    def write_files(self, key: RunKey, contents: dict[str, bytes]) -> None:
        """Store artifacts by relative path."""

    def draw_curve(self, key: RunKey) -> None:
        """Store the figures and the best validation value of the run."""

    def end_run(self, key: RunKey, command: EndRun) -> None:
        """Set the run's final status."""

    def reconcile(self, key: RunKey, command: ReconcileRuns) -> None:
        """Make all runs of the key's study agree with the study database."""
