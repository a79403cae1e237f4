"""The cost of a configuration, estimated from its seeds: their mean, and its interval if there are several.

Mean and interval are taken over costs and then transformed: a mean perplexity is the geometric mean.
"""

import math
from collections.abc import Sequence
from statistics import mean, stdev

from pydantic import Field
from scipy.special import stdtrit

from memtune.objective import Objective
from memtune.values import Value

__all__ = ["CONFIDENCE_LEVEL", "Estimate", "estimate_cost"]

CONFIDENCE_LEVEL = 0.95


class Estimate(Value):
    """A mean cost over seeds, lower is better, and the bounds of its 95 % interval."""

    cost: float
    seeds: int = Field(default=1, ge=1)
    low: float | None = None
    """The lower bound of the cost; None for a single seed, which has no interval."""
    high: float | None = None

    def compute_interval(self, objective: Objective | str) -> tuple[float, float] | None:
        """The bounds of the perplexity or accuracy, the smaller one first; None for a single seed."""
        objective = Objective(objective)
        bounds = self._order_bounds(objective)
        return bounds and (objective.compute_figure(bounds[0]), objective.compute_figure(bounds[1]))

    def describe(self, objective: Objective | str, digits: int) -> str:
        """The figure with its interval, or with the fact that a single seed decided it.

        >>> Estimate(cost=0.25, seeds=3, low=0.24, high=0.26).describe("accuracy", 1)
        '75.0 % (mean of 3 seeds, 95 % interval 74.0 % to 76.0 %)'
        """
        objective = Objective(objective)
        figure, bounds = objective.format_cost(self.cost, digits), self._order_bounds(objective)
        if bounds is None:
            return f"{figure} (decided by a single seed)"
        low, high = (objective.format_cost(bound, digits) for bound in bounds)
        return f"{figure} (mean of {self.seeds} seeds, 95 % interval {low} to {high})"

    def format(self, objective: Objective | str, digits: int) -> str:
        """The figure with its interval in brackets, for tables.

        >>> Estimate(cost=0.25, seeds=3, low=0.24, high=0.26).format("accuracy", 1)
        '75.0 % [74.0 %, 76.0 %]'
        """
        objective = Objective(objective)
        figure, bounds = objective.format_cost(self.cost, digits), self._order_bounds(objective)
        if bounds is None:
            return figure
        low, high = (objective.format_cost(bound, digits) for bound in bounds)
        return f"{figure} [{low}, {high}]"

    def _order_bounds(self, objective: Objective) -> tuple[float, float] | None:
        """The bounds of the cost in the order of their figures, within the costs that an objective has."""
        if self.low is None or self.high is None:
            return None
        low, high = max(0.0, self.low), min(objective.max_cost, self.high)
        return (low, high) if objective.direction == "lower" else (high, low)


def estimate_cost(costs: Sequence[float], intervals: int = 1) -> Estimate:
    """The mean of the costs of several seeds with its t-interval; a single cost has no interval.

    In 95 % of studies all of so many `intervals` hold at once (Bonferroni), so that the interval of the best
    of them holds too.
    """
    if len(costs) == 1:
        return Estimate(cost=costs[0])
    quantile = float(stdtrit(len(costs) - 1, 1 - (1 - CONFIDENCE_LEVEL) / (2 * intervals)))
    center, half = mean(costs), quantile * stdev(costs) / math.sqrt(len(costs))
    return Estimate(cost=center, seeds=len(costs), low=center - half, high=center + half)
