"""The progress of a running study in figures: best value so far, margin, trials by state, cost."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from memtune.objective import Objective
from memtune.search import Outcome
from memtune.studies.definition.study_terms import Prices
from memtune.studies.trial import Trial
from memtune.trial_state import TrialState
from memtune.usage import Usage

COUNTED_STATES = (
    TrialState.RUNNING,
    TrialState.COMPLETE,
    TrialState.STOPPED,
    TrialState.PAUSED,
    TrialState.FAILED,
)


@dataclass(frozen=True)
class _TrialProgress:
    """The progress of a trial."""

    configuration: str
    state: TrialState
    usage: Usage
    cost: float | None
    """The lowest validation cost so far; None before the first validation."""


class StudyProgress:
    """The figures of a study over all trials that it has started, repeats included."""

    def __init__(self, objective: Objective, prices: Prices | None) -> None:
        self._objective, self._prices = objective, prices
        self._progress_by_identity: dict[str, _TrialProgress] = {}

    def add_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """Add trials of the study database, which earlier drivers have run."""
        for outcome in outcomes:
            cost, identity = min(outcome.curve.values(), default=None), outcome.config.configuration_identity
            progress = _TrialProgress(identity, outcome.state, outcome.usage, cost)
            self._progress_by_identity[outcome.identity] = progress

    def add_trial(self, trial: Trial, state: TrialState) -> None:
        """Add or update a trial of this driver."""
        configuration = trial.config.configuration_identity
        progress = _TrialProgress(configuration, state, trial.usage, trial.best_cost)
        self._progress_by_identity[trial.proposal.identity] = progress

    def is_improved_by(self, trial: Trial) -> bool:
        """Whether a trial has a lower cost than every trial added so far."""
        cost, costs = trial.best_cost, self._list_costs()
        return cost is not None and (not costs or cost < costs[0])

    @property
    def tokens(self) -> int:
        """Predicted tokens that the trials have trained on."""
        return sum(progress.usage.tokens for progress in self._progress_by_identity.values())

    def list_figures(self) -> dict[str, float]:
        """The figures by name, for a tracking store: hours are of cores and of GPUs."""
        usages = [progress.usage for progress in self._progress_by_identity.values()]
        states = Counter(progress.state for progress in self._progress_by_identity.values())
        figures = {f"trials_{state.value}": float(states[state]) for state in COUNTED_STATES}
        figures |= {
            "spent_tokens": float(self.tokens),
            "spent_cpu_hours": sum(usage.cpu_seconds for usage in usages) / 3600,
            "spent_gpu_hours": sum(usage.gpu_seconds for usage in usages) / 3600,
        }
        if self._prices is not None:
            figures["spent_money"] = sum(self._prices.compute_usage_money(usage) for usage in usages)
        costs = self._list_costs()
        if costs:
            figures["best_validation"] = self._objective.compute_figure(costs[0])
        if len(costs) > 1:
            figures["margin_percent"] = self._objective.compute_margin(costs[0], costs[1])
        return figures

    def _list_costs(self) -> list[float]:
        """The lowest cost of each configuration, ascending."""
        best: dict[str, float] = {}
        for progress in self._progress_by_identity.values():
            if progress.cost is not None:
                cost = min(progress.cost, best.get(progress.configuration, progress.cost))
                best[progress.configuration] = cost
        return sorted(best.values())
