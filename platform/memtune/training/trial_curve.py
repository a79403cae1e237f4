"""The reports of a trial so far, with the weights of the best one."""

from collections.abc import Callable, Sequence

from torch import Tensor

from memtune.training.trial_report import Report, find_best_report


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
