"""The recorder's commands as values on their way to the store, and the tags by which runs are found.

`RunWriter` carries them out. Repeating a command that failed half-way changes nothing twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memtune.objective import Objective
from memtune.trial_state import TrialEnd, TrialState
from memtune.values import Value

NO_STUDY = "alone"
"""The study under which trials without a study are recorded."""
STUDY_TAG = "memtune.study"
TRIAL_TAG = "memtune.trial"
ROLE_TAG = "memtune.role"
CODE_TAG = "memtune.code"
"""The version of the code that recorded a run."""
STATE_TAG = "memtune.state"
STOP_REASON_TAG = "memtune.stop_reason"
REASON_TAG = "memtune.reason"
OBJECTIVE_TAG = "memtune.objective"
PROTOCOL_TAG = "memtune.protocol"
"""The label of a trial: protocol and task."""
SIZE_PARAMETER = "parameters"
"""The parameter that holds the number of trained parameters of a model."""
STUDY_NAME_TAG = "memtune.name"
NUMBER_TAG = "memtune.number"
"""A trial's name within its study: its number, with the seed of a repeat."""
VALIDATED_TOKENS_TAG = "memtune.validated_tokens"
"""Of an ended trial: tokens at its last report with a validation."""
PARENT_TAG = "mlflow.parentRunId"
STATUS_TAG = "memtune.status"
"""The state of a trial, for readers: "finished", "stopped at 300,000 tokens", "failed: the disk is full"."""
IDEAL_TAG = "memtune.ideal_perplexity"
"""The validation perplexity that no model can beat, of a corpus for which it is known."""
RANK_TAG, FIGURE_TAG = "memtune.rank", "memtune.figure"
"""The place of a trial's configuration in its study, and its figure in words; set when the study ends."""
BEST_OF_FAMILY_TAG = "memtune.best_of_family"
"""Is "yes" on the best trial of each family of a study."""
NOTE_TAG = "mlflow.note.content"
"""The description that MLflow's pages show as Markdown."""
RANKING_METRIC = "best_validation"
"""The best validation figure up to each report, in every task: MLflow's tables show a metric's last value."""
ABOVE_IDEAL_METRIC = "above_ideal_percent"
TOKENS_METRIC, HOURS_METRIC, MONEY_METRIC = "tokens", "hours", "spent_money"
"""What a trial has seen and used up to its last report."""


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


class CorpusInput(Value):
    """The corpus that a trial trains on, as lineage: its store, its digest, and its counts per split."""

    name: str
    digest: str
    store: str
    vocabulary_size: int
    splits: dict[str, dict[str, int]]


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
    description: str = ""
    """Markdown for the pages."""


@dataclass(frozen=True)
class LogReport:
    """One report of a trial, and when it arrived, in milliseconds since the epoch."""

    time_ms: int
    report: object


@dataclass(frozen=True)
class WriteFiles:
    """Artifacts of a run: content by relative path."""

    contents: dict[str, bytes]


@dataclass(frozen=True)
class DrawCurve:
    """The figures of a trial and its best validation value, from all reports so far."""


@dataclass(frozen=True)
class EndRun:
    """How and why a run ended, and when, in milliseconds since the epoch."""

    state: TrialState
    end: TrialEnd | None
    time_ms: int
    validated_tokens: int | None = None
    """Tokens at a trial's last report with a validation; None for a study and where it is not known."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures of the whole trial, such as the money that it cost."""


@dataclass(frozen=True)
class ReconcileRuns:
    """The states of the trials that have ended according to the study database, by identity."""

    state_by_trial: dict[str, TrialState]
    time_ms: int


RunCommand = StartRun | LogReport | WriteFiles | DrawCurve | EndRun | ReconcileRuns


def read_objective(tags: Mapping[str, str]) -> Objective:
    """The objective of a run by its tags."""
    return Objective.ACCURACY if tags.get(OBJECTIVE_TAG) == Objective.ACCURACY else Objective.PERPLEXITY
