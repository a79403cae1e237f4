"""What a trial says of itself: a report at each milestone, and its progress between two."""

from collections.abc import Sequence
from dataclasses import dataclass

from memtune.objective import Objective
from memtune.values import Value

__all__ = ["Progress", "Report", "best_report"]


class Report(Value):
    """Where a trial stands at a milestone. A figure that is not finite is None."""

    tokens: int
    """Predicted tokens trained on so far, over all restarts."""
    epoch: float
    """The same in passes over the training split."""
    train_loss: float | None
    """Nats per token over the tokens since the report before, each under the weights of its step."""
    train_perplexity: float | None
    """exp of it."""
    valid_loss: float | None
    """Nats per token of the validation split; None when the trial diverged before it was read."""
    valid_perplexity: float | None
    """exp of it."""
    gradient_norm: float | None
    """Mean over the steps since the report before, before clipping."""
    learning_rate: float | None
    """Of the last step, whatever a batch of random length makes of it; None where there are no steps."""
    tokens_per_second: float
    """Of training since the report before, evaluation left out."""
    seconds: float
    """Spent training and evaluating so far, over all restarts."""
    peak_memory_bytes: int
    """Largest so far: of the whole process on a CPU, of the tensors on a GPU."""
    finished: bool
    """Whether the trial is over."""
    reason: str | None
    """Why it is over: "budget", "no improvement in 3 reports", "diverged: ..."; None while it goes on."""

    objective: Objective = "perplexity"
    """What trials of this task are compared by."""
    valid_accuracy: float | None = None
    """Share of the validation split's questions answered rightly; None where nothing is asked."""
    kernels: str | None = None
    """What multiplied matrices of single precision on a CPU: "default", or "onednn" where the node found that
    as exact and faster; None on a GPU, and where nothing was multiplied."""

    @property
    def cost(self) -> float | None:
        """What trials are compared by, lower is better; None when the trial diverged before validation."""
        if self.objective == "perplexity":
            return self.valid_loss
        return None if self.valid_accuracy is None else 1 - self.valid_accuracy

    @property
    def diverged(self) -> bool:
        """Whether the trial is over because its figures left all reason."""
        return self.reason is not None and self.reason.startswith("diverged")


def best_report(curve: Sequence[Report]) -> Report | None:
    """The report with the lowest cost, the first of equals; None before there is one."""
    scored = [report for report in curve if report.cost is not None and not report.diverged]
    return min(scored, key=lambda report: report.cost or 0.0, default=None)


@dataclass(frozen=True)
class Progress:
    """A glance at a trial between two reports."""

    tokens: int
    """Predicted tokens trained on so far."""
    tokens_per_second: float
    """Since the report before."""
    loss: float
    """Nats per token since the report before."""
    seconds_left: float
    """Until the budget's end at this speed, evaluations left out."""
