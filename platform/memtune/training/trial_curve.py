"""The reports of a trial so far, with the weights of the best one, and what ends it before its budget."""

from collections.abc import Callable, Sequence

from torch import Tensor

from memtune.tasks import Metrics
from memtune.training.trial_report import Report, find_best_report
from memtune.trial_state import StopReason, TrialEnd


class TrialCurve:
    """The reports, oldest first, the best report, and the weights of the best report."""

    def __init__(self, reports: Sequence[Report] = (), best_weights: dict[str, Tensor] | None = None) -> None:
        self.reports = list(reports)
        self.best = find_best_report(self.reports)
        self.best_weights = best_weights

    @property
    def is_finished(self) -> bool:
        """Whether the last report ends the trial."""
        return bool(self.reports) and self.reports[-1].is_finished

    @property
    def valid_costs(self) -> list[float]:
        """Costs of the validation reports, oldest first; lower is better."""
        return [report.cost for report in self.reports if report.cost is not None]

    def add(self, report: Report, copy_weights: Callable[[], dict[str, Tensor]]) -> None:
        """Add a report; copy the weights if it is the best so far."""
        self.reports.append(report)
        self.best = find_best_report(self.reports)
        if self.best is report:
            self.best_weights = copy_weights()


DIVERGENCE_FACTOR = 10
"""A trial diverges above this multiple of the perplexity of chance, which is the number of outcomes."""


def find_divergence(metrics: Metrics, outcome_count: int) -> str | None:
    """The problem of a validation that is NaN or far worse than chance; None without a problem."""
    limit = DIVERGENCE_FACTOR * outcome_count
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


def never_stop() -> bool:
    """The condition of a training that nothing stops early."""
    return False
