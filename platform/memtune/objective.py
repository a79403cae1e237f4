"""What trials are compared by: a figure that readers know, and the cost behind it, of which less is better.

| objective | figure | cost |
|---|---|---|
| perplexity | exp of the cost, lower is better | nats per predicted token |
| accuracy | 1 - cost, higher is better | share of wrong answers |
"""

import math
from typing import Literal

__all__ = ["Objective", "better", "figure", "shown"]

Objective = Literal["perplexity", "accuracy"]


def figure(objective: Objective, cost: float) -> float:
    """The figure of a cost; a perplexity is infinite where exp overflows."""
    if objective == "accuracy":
        return 1 - cost
    return math.exp(cost) if cost < 700 else math.inf


def better(objective: Objective) -> Literal["lower", "higher"]:
    """Which figures are better."""
    return "higher" if objective == "accuracy" else "lower"


def shown(objective: Objective, cost: float, digits: int) -> str:
    """The figure of a cost for a reader, with so many digits after the point.

    >>> shown("accuracy", 0.4596, 2)
    '54.04 %'
    """
    found = figure(objective, cost)
    return f"{100 * found:.{digits}f} %" if objective == "accuracy" else f"{found:.{digits}f}"
