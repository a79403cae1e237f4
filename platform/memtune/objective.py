"""The objective of trials: the figure that users read, and its cost, which the search minimises.

| objective | figure | cost |
|---|---|---|
| perplexity | exp of the cost, lower is better | nats per predicted token |
| accuracy | 1 - cost, higher is better | share of wrong answers |
"""

import math
from typing import Literal

__all__ = ["Objective", "better_direction", "compute_figure", "format_figure"]

Objective = Literal["perplexity", "accuracy"]


def compute_figure(objective: Objective, cost: float) -> float:
    """The figure of a cost; perplexity is infinite where exp overflows."""
    if objective == "accuracy":
        return 1 - cost
    return math.exp(cost) if cost < 700 else math.inf  # exp overflows float64 above 709


def better_direction(objective: Objective) -> Literal["lower", "higher"]:
    """Whether lower or higher figures are better."""
    return "higher" if objective == "accuracy" else "lower"


def format_figure(objective: Objective, cost: float, digits: int) -> str:
    """The figure of a cost as text, with `digits` decimal places.

    >>> format_figure("accuracy", 0.4596, 2)
    '54.04 %'
    """
    figure = compute_figure(objective, cost)
    return f"{100 * figure:.{digits}f} %" if objective == "accuracy" else f"{figure:.{digits}f}"
