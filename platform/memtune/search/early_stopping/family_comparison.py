"""Whether one family of models is better than another, from trials at full length.

A family of slow starters is behind at every early rung, whatever its trials reach at full length. The best
trials of each family therefore pass the rungs until trials at full length show that another family is better:
until the interval of the family's best value is above the other's best value.

The interval is for the lower end of a family's distribution of values, from its best values x1 <= ... <= xk:

    [x1 - ((1 - confidence)^(-1/(k - 1)) - 1) (xk - x1), x1]

Robson and Whitlock (1964), "Estimation of a Truncation Point", have k = 2; more values make it narrower under
the same assumption, that the density is positive and even near its lower end.
"""

import math
from collections.abc import Mapping, Sequence

__all__ = ["MAX_VALUES", "compute_lower_bound", "is_leading"]

CONFIDENCE = 0.95
MIN_VALUES = 3
MAX_VALUES = 4
"""The best values of a family that its interval uses; the density is less even at further ones."""


def compute_lower_bound(values: Sequence[float]) -> float:
    """The lower bound of a family's best value from its best values, best first; lower is better.

    Minus infinity for fewer than three values.
    """
    best = values[:MAX_VALUES]
    if len(best) < MIN_VALUES or not math.isfinite(best[-1]):
        return -math.inf
    factor = math.pow(1 - CONFIDENCE, -1 / (len(best) - 1)) - 1
    return best[0] - factor * (best[-1] - best[0])


def is_leading(family: str, best_values: Mapping[str, Sequence[float]]) -> bool:
    """Whether no other family is better, by each family's best values at full length."""
    bound = compute_lower_bound(best_values.get(family, ()))
    return all(other == family or values[0] >= bound for other, values in best_values.items())
