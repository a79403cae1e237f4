"""Reports of a trial at its milestones, what they say about its end, and its progress between them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import model_validator

from memtune.objective import Objective
from memtune.tasks import Metrics
from memtune.trial_state import StopReason, TrialEnd, read_earlier_end
from memtune.values import Value


class Report(Value):
    """State of a trial at a milestone. A figure that is not finite is None, and an unknown one is not set."""

    tokens: int
    """Predicted tokens trained on so far, over all restarts."""
    epoch: float = 0.0
    """`tokens` in passes over the training split."""
    train_loss: float | None = None
    """Nats per token since the previous report, each token under the weights of its step."""
    train_perplexity: float | None = None
    """exp(train_loss)."""
    valid_loss: float | None = None
    """Nats per token of the validation split; None when the trial diverged before validation."""
    valid_perplexity: float | None = None
    """exp(valid_loss)."""
    gradient_norm: float | None = None
    """Mean norm before clipping over the steps since the previous report."""
    learning_rate: float | None = None
    """Learning rate of the last step, before the batch's own scale; None without steps."""
    tokens_per_second: float = 0.0
    """Training speed since the previous report, without evaluation."""
    seconds: float = 0.0
    """Seconds of training and evaluation so far, over all restarts."""
    peak_memory_bytes: int = 0
    """Peak memory so far: of the whole process on a CPU, of the tensors on a GPU."""
    end: TrialEnd | None = None
    """Why the trial ended; None while it trains."""

    objective: Objective = Objective.PERPLEXITY
    """The figure that compares trials of this task."""
    valid_accuracy: float | None = None
    """Share of correct answers on the validation split; None for a task without questions or labels."""
    kernels: str | None = None
    """Kernels of float32 matrix products on a CPU: "default", or "onednn" where the node measured them as
    equally exact and faster. None on a GPU and for a model that counts."""

    cpu_seconds: float = 0.0
    """Reserved cores times seconds so far, over all workers and restarts."""
    gpu_seconds: float = 0.0
    """Reserved GPUs times seconds so far."""

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_form(cls, report: Any) -> Any:
        """In checkpoints of schema 1 and 2 a report has `finished`, and a sentence in place of `end`."""
        if not (isinstance(report, Mapping) and "finished" in report):
            return report
        kept = {name: value for name, value in report.items() if name not in ("finished", "reason")}
        sentence = str(report.get("reason") or "")
        return {**kept, "end": read_earlier_end(sentence) if report["finished"] else None}

    @property
    def cost(self) -> float | None:
        """The value that compares trials, lower is better; None when the trial diverged before validation."""
        return self.read_cost(self.objective)

    def read_cost(self, objective: Objective) -> float | None:
        """The same by another figure; None also where the task does not have it."""
        metric = getattr(self, f"valid_{objective.metric}")
        return None if metric is None else objective.compute_cost(metric)

    @property
    def has_diverged(self) -> bool:
        """Whether the trial ended because its loss, gradient or validation diverged."""
        return self.end is not None and self.end.reason is StopReason.DIVERGED

    @property
    def is_finished(self) -> bool:
        """Whether the trial has ended."""
        return self.end is not None


def make_report(
    tokens: int, cost: float, objective: Objective, epoch: float | None = None, end: TrialEnd | None = None
) -> Report:
    """A report of a validation and nothing else; a cost that is not finite is a divergence."""
    known: dict[str, Any] = {"tokens": tokens, "objective": objective}
    known |= {} if epoch is None else {"epoch": epoch}
    if not math.isfinite(cost):
        return Report(**known, end=TrialEnd(reason=StopReason.DIVERGED, detail=f"the value is {cost}"))
    if objective is Objective.ACCURACY:
        return Report(**known, valid_accuracy=1 - cost, end=end)
    # exp() of more overflows.
    return Report(**known, valid_loss=cost, valid_perplexity=math.exp(min(cost, 700.0)), end=end)


def find_best_report(curve: Sequence[Report]) -> Report | None:
    """The report with the lowest cost, the first of equals; None without a validation report."""
    scored = [report for report in curve if report.cost is not None and not report.has_diverged]
    return min(scored, key=lambda report: report.cost or 0.0, default=None)


@dataclass(frozen=True)
class Progress:
    """Progress of a trial between two reports."""

    tokens: int
    """Predicted tokens trained on so far."""
    tokens_per_second: float
    """Training speed since the previous report."""
    loss: float
    """Nats per token since the previous report."""
    seconds_left: float
    """Seconds to the end of the budget at this speed, without evaluations."""


DIVERGENCE_FACTOR = 10
"""A trial diverges above this multiple of the perplexity of chance, which is the number of outcomes."""


def find_divergence(metrics: Metrics, outcome_count: int) -> str | None:
    """The problem of a validation that is NaN or far worse than chance; None without a problem."""
    limit = DIVERGENCE_FACTOR * outcome_count
    if math.isnan(metrics.perplexity):
        return "the validation loss is not a number"
    if metrics.perplexity <= limit:
        return None
    return (
        f"the validation perplexity {metrics.perplexity:.4g} is over {limit}, {DIVERGENCE_FACTOR} "
        f"times chance"
    )


def find_stall(costs: Sequence[float], patience: int | None) -> TrialEnd | None:
    """The end of a trial whose validation costs, oldest first, stopped improving; None while they improve."""
    since_best = len(costs) - 1 - costs.index(min(costs))
    if patience is None or since_best < patience:
        return None
    return TrialEnd(reason=StopReason.NO_IMPROVEMENT, detail=f"no improvement in {patience} reports")
