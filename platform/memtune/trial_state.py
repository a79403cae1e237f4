"""The states of a trial and the reasons for its end, the same in Optuna, MLflow, checkpoints and tables."""

from enum import StrEnum

from memtune.values import Value


class TrialState(StrEnum):
    """The state of a trial. Stored by value: renaming a member's value makes stored studies unreadable."""

    WAITING = "waiting"
    """Proposed, without a worker; also after its worker was lost."""
    RUNNING = "running"
    COMPLETE = "complete"
    """Trained to the end of its budget, or until validation stopped improving."""
    STOPPED = "stopped"
    """Ended by the study before the end of its budget."""
    FAILED = "failed"
    PAUSED = "paused"
    """Waits with its checkpoint; the study's early-stopping rule continues it or leaves it so."""
    INTERRUPTED = "interrupted"
    """Left open by a driver that ended; a later driver resumes it."""
    REFUSED = "refused"
    """Sampled, but never started: too large, or of fields that exclude each other."""
    DUPLICATE = "duplicate"
    """Sampled, but never started: another trial of the study has this configuration."""

    @property
    def label(self) -> str:
        """The state in tables: "open" for a started trial that has not ended.

        The study database does not tell whether such a trial has a worker, waits for one or was interrupted.
        """
        is_unended = self in (TrialState.WAITING, TrialState.RUNNING, TrialState.INTERRUPTED)
        return "open" if is_unended else self.value

    @property
    def is_open(self) -> bool:
        """Whether a worker trains the trial now, or the trial waits for one."""
        return self in (TrialState.WAITING, TrialState.RUNNING)

    @property
    def has_ended(self) -> bool:
        """Whether the trial was started and never continues."""
        return self in (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED)

    @property
    def has_ended_or_paused(self) -> bool:
        """Whether the trial was started and has no worker: a paused one may continue, or stay so."""
        return self.has_ended or self is TrialState.PAUSED

    @property
    def has_ended_early(self) -> bool:
        """Whether the trial has ended or paused before the end of its budget."""
        return self.has_ended_or_paused and self is not TrialState.COMPLETE


class StopReason(StrEnum):
    """Why a trial ended. Stored by value, like TrialState."""

    BUDGET = "budget"
    """It has trained on all its tokens."""
    NO_IMPROVEMENT = "no_improvement"
    """Validation has not improved for `training.patience` reports."""
    DIVERGED = "diverged"
    """A loss or gradient is not finite, or validation is far worse than chance."""
    EARLY_STOPPING = "early_stopping"
    """The study's early-stopping rule ended or paused it."""
    ERROR = "error"
    """memtune raised an error that names the cause."""
    WORKER_LOST = "worker_lost"
    """Its worker died repeatedly without getting further."""
    NO_VALIDATION = "no_validation"
    """It ended before its first validation."""


class TrialEnd(Value):
    """Why a trial ended: the reason that code decides by, and a sentence for readers."""

    reason: StopReason
    detail: str = ""

    def __str__(self) -> str:
        """The sentence for readers; the reason where there is none."""
        return self.detail or self.reason.value


def read_earlier_end(sentence: str) -> TrialEnd:
    """The end of a trial from its sentence, which stores before 2026-11-22 hold alone."""
    prefixes = {
        "budget": StopReason.BUDGET,
        "no improvement": StopReason.NO_IMPROVEMENT,
        "diverged": StopReason.DIVERGED,
        "the objective is": StopReason.DIVERGED,
        "successive halving": StopReason.EARLY_STOPPING,
        "no validation": StopReason.NO_VALIDATION,
    }
    found = (reason for prefix, reason in prefixes.items() if sentence.startswith(prefix))
    reason = next(found, StopReason.ERROR)
    return TrialEnd(reason=reason, detail="" if sentence == reason.value else sentence)
