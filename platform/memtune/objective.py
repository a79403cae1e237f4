"""The objective of trials: the figure that users read, and its cost, which the search minimises.

| objective | figure | cost |
|---|---|---|
| perplexity | exp of the cost, lower is better | nats per predicted token |
| accuracy | 1 - cost, higher is better | share of wrong answers |
"""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from memtune.errors import ConfigurationError, did_you_mean

PredictionUnit = Literal["tokens", "examples"]
"""What a task predicts, and what budgets, reports and costs count: words of a text, or labelled examples."""
MAX_DIFFERENCE = 700.0
"""Nats; the exponential of more overflows float64."""


class Objective(StrEnum):
    """What compares the trials of a task. Stored by value: another value makes stored studies unreadable."""

    PERPLEXITY = "perplexity"
    ACCURACY = "accuracy"

    def __init__(self, value: str) -> None:
        is_perplexity = value == "perplexity"
        self.direction: Literal["lower", "higher"] = "lower" if is_perplexity else "higher"
        """Whether lower or higher figures are better."""
        self.has_ideal = is_perplexity
        """Whether a corpus may know the best possible figure: its ideal perplexity."""
        self.is_ratio = is_perplexity
        """Whether figures compare by their ratio, over orders of magnitude; others compare by difference."""
        self.max_cost = math.inf if is_perplexity else 1.0
        """The highest cost that a trial can have."""
        self.figure_range = "a perplexity, at least 1" if is_perplexity else "an accuracy, at most 100 %"
        """What a scaled figure is, and its best value, in words."""
        self.cost_unit = "nats per token" if is_perplexity else "share of wrong answers"
        self.metric = "loss" if is_perplexity else "accuracy"
        """The metric that a split's costs are read from, without the split's name."""
        self.scale = 1 if is_perplexity else 100
        """The factor of a figure as readers see it: accuracies are in per cent."""
        self.unit = "" if is_perplexity else " %"
        """What follows a scaled figure, after its blank."""
        self.margin_unit = "%" if is_perplexity else "percentage points"
        """The unit of `compute_gain` in a sentence."""
        self.short_margin_unit = "%" if is_perplexity else "points"
        """The unit of `compute_gain` in a table."""
        self.axis_title = f"{value} ({self.direction} is better)"

    @classmethod
    def from_name(cls, name: "Objective | str") -> "Objective":
        """The objective of a name. Raises ConfigurationError for an unknown one."""
        if name not in [*cls]:
            raise ConfigurationError(f'no objective "{name}"; {did_you_mean(str(name), cls)}')
        return cls(name)

    def compute_figure(self, cost: float) -> float:
        """The figure of a cost; perplexity is infinite where exp overflows."""
        if self is Objective.ACCURACY:
            return 1 - cost
        return math.exp(cost) if cost < 700 else math.inf  # exp overflows float64 above 709

    def compute_cost(self, metric: float) -> float:
        """The cost of a value of `metric`: of a loss or of an accuracy."""
        return metric if self is Objective.PERPLEXITY else 1 - metric

    def compute_target_cost(self, target: float) -> float:
        """The cost of a target as readers write it: a perplexity, or an accuracy in per cent."""
        return math.log(target) if self is Objective.PERPLEXITY else 1 - target / 100

    def compute_gain(self, cost_difference: float) -> float:
        """How much better a figure is than another, by the difference of their costs, this one minus another.

        A perplexity by how many per cent it is lower, an accuracy by how many points it is higher.
        """
        if self is Objective.ACCURACY:
            return -100 * cost_difference
        return -100 * math.expm1(min(cost_difference, MAX_DIFFERENCE))

    def describe_gain(self, cost_difference: float) -> str:
        """The same in words.

        >>> Objective.ACCURACY.describe_gain(0.25)
        'accuracy 25.0 points lower'
        """
        gain = self.compute_gain(cost_difference)
        is_lower = (gain >= 0) == (self.direction == "lower")
        return f"{self} {abs(gain):.1f} {self.short_margin_unit} {'lower' if is_lower else 'higher'}"

    def compute_difference(self, figure: float, other: float) -> float:
        """A scaled figure against another: per cent of a perplexity, points of an accuracy; not a margin."""
        return 100 * (figure / other - 1) if self is Objective.PERPLEXITY else figure - other

    def choose_best(self, figures: Iterable[float]) -> float:
        """The best of some figures."""
        return min(figures) if self is Objective.PERPLEXITY else max(figures)

    def format_figure(self, figure: float, digits: int) -> str:
        """A figure as text, with `digits` decimal places.

        >>> Objective.ACCURACY.format_figure(0.5404, 2)
        '54.04 %'
        """
        return f"{self.scale * figure:.{digits}f}{self.unit}"

    def format_cost(self, cost: float, digits: int) -> str:
        """The figure of a cost as text, with `digits` decimal places.

        >>> Objective.ACCURACY.format_cost(0.4596, 2)
        '54.04 %'
        """
        return self.format_figure(self.compute_figure(cost), digits)
