"""What the recorder is told, as values on their way to the store, and the tags by which runs are found."""

from dataclasses import dataclass
from typing import Any

from memtune.tracking.entries import CorpusInput

__all__ = ["Command", "Curve", "Ending", "Files", "LoggedReport", "Opening", "Reconciliation", "RunKey"]

STUDY = "memtune.study"
TRIAL = "memtune.trial"
ROLE = "memtune.role"
REASON = "memtune.reason"
OBJECTIVE = "memtune.objective"
PARENT = "mlflow.parentRunId"


@dataclass(frozen=True)
class RunKey:
    """A run's own name: the study, and the trial's identity unless it is the study's run."""

    study: str
    trial: str | None = None

    def tags(self) -> dict[str, str]:
        """The tags by which the run is found again."""
        if self.trial is None:
            return {STUDY: self.study, ROLE: "study"}
        return {STUDY: self.study, ROLE: "trial", TRIAL: self.trial}


@dataclass(frozen=True)
class Opening:
    """What is known of a run when it starts; `time` in milliseconds since the epoch."""

    name: str
    time: int
    parameters: dict[str, Any]
    tags: dict[str, str]
    dataset: CorpusInput | None = None


@dataclass(frozen=True)
class LoggedReport:
    """One report of a trial, and when it came, in milliseconds since the epoch."""

    time: int
    report: object


@dataclass(frozen=True)
class Files:
    """Artifacts of a run: content by relative path."""

    contents: dict[str, bytes]


@dataclass(frozen=True)
class Curve:
    """The learning curve, drawn from what the store holds by now."""


@dataclass(frozen=True)
class Ending:
    """How a run ended: FINISHED, FAILED or KILLED, why, and when in milliseconds since the epoch."""

    status: str
    reason: str
    time: int


@dataclass(frozen=True)
class Reconciliation:
    """The trials that a study knows to have ended, by identity: FINISHED, FAILED or KILLED."""

    ended: dict[str, str]
    time: int


Command = Opening | LoggedReport | Files | Curve | Ending | Reconciliation
