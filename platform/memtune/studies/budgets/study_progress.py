"""The progress of a running study in figures: best value so far, margin, trials by state, cost."""

import math
from collections import Counter
from collections.abc import Iterable

from memtune.objective import Objective
from memtune.search import Outcome
from memtune.studies.definition.study_terms import Prices
from memtune.studies.trial import Trial
from memtune.training import TrialConfig
from memtune.trial_state import TrialState
from memtune.usage import Usage, UsageTotal

COUNTED_STATES = (
    TrialState.RUNNING,
    TrialState.COMPLETE,
    TrialState.STOPPED,
    TrialState.PAUSED,
    TrialState.FAILED,
)


class StudyProgress:
    """The figures of a study over all trials that it has started, repeats included."""

    def __init__(self, objective: Objective, prices: Prices | None) -> None:
        self._objective, self._prices = objective, prices
        self._usage = UsageTotal()
        self._states: dict[str, TrialState] = {}
        """By identity."""
        self._trials_by_state: Counter[TrialState] = Counter()
        self._best: list[tuple[float, str]] = []
        """The lowest cost of each of the two best configurations, with its identity, ascending."""

    def add_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """Add trials of the study database, which earlier drivers have run."""
        for outcome in outcomes:
            self._add(outcome.identity, outcome.state, outcome.usage)
            self._add_cost(min(outcome.curve.values(), default=None), outcome.config)

    def add_trial(self, trial: Trial, state: TrialState) -> None:
        """Add or update a trial of this driver."""
        self._add(trial.proposal.identity, state, trial.usage)
        self._add_cost(trial.best_cost, trial.config)

    def is_improved_by(self, trial: Trial) -> bool:
        """Whether a trial has a lower cost than every trial added so far."""
        cost = trial.best_cost
        return cost is not None and (not self._best or cost < self._best[0][0])

    @property
    def tokens(self) -> int:
        """Predicted tokens that the trials have trained on."""
        return self._usage.sum.tokens

    def list_figures(self) -> dict[str, float]:
        """The figures by name, for a tracking store: hours are of cores and of GPUs."""
        usage = self._usage.sum
        figures = {f"trials_{state.value}": float(self._trials_by_state[state]) for state in COUNTED_STATES}
        figures |= {
            "spent_tokens": float(usage.tokens),
            "spent_cpu_hours": usage.cpu_seconds / 3600,
            "spent_gpu_hours": usage.gpu_seconds / 3600,
        }
        if self._prices is not None:
            figures["spent_money"] = self._prices.compute_usage_money(usage)
        costs = [cost for cost, _ in self._best]
        if costs:
            figures["best_validation"] = self._objective.compute_figure(costs[0])
        if len(costs) > 1:
            figures["margin_percent"] = self._objective.compute_margin(costs[0], costs[1])
        return figures

    def _add(self, identity: str, state: TrialState, usage: Usage) -> None:
        if (before := self._states.get(identity)) is not None:
            self._trials_by_state[before] -= 1
        self._trials_by_state[state] += 1
        self._states[identity] = state
        self._usage.count(identity, usage, has_ended=state.has_ended)

    def _add_cost(self, cost: float | None, config: TrialConfig) -> None:
        """Add a trial's lowest cost so far: of a configuration with a higher one, nothing is kept."""
        is_among_best = len(self._best) < 2 or (cost is not None and cost < self._best[1][0])
        if cost is None or math.isnan(cost) or not is_among_best:
            return
        best = {name: known for known, name in self._best}
        name = config.configuration_identity
        best[name] = min(cost, best.get(name, cost))
        self._best = sorted((known, name) for name, known in best.items())[:2]
