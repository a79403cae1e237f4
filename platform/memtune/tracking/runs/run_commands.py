"""The recorder's commands as values on their way to the store.

`RunWriter` carries them out. Repeating a command that failed half-way changes nothing twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memtune.tracking.runs import run_tags
from memtune.trial_state import TrialEnd, TrialState
from memtune.values import Value


@dataclass(frozen=True)
class RunKey:
    """The identity of a run: the study, and the trial's identity unless it is the study's run."""

    study: str
    trial: str | None = None

    def tags(self) -> dict[str, str]:
        """The tags by which the run is found again."""
        if self.trial is None:
            return {run_tags.STUDY: self.study, run_tags.ROLE: "study"}
        return {run_tags.STUDY: self.study, run_tags.ROLE: "trial", run_tags.TRIAL: self.trial}


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
