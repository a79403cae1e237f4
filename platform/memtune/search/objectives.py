"""The objectives of a study: the value of its trials, and what their models take.

Inside memtune every objective is a coordinate that is better the lower it is: the cost of the value, and the
binary logarithm of a size, so that half the size counts as much for small models as for large ones.
"""

import math
from collections.abc import Mapping
from typing import Literal

__all__ = ["DEFAULT_OBJECTIVES", "SIZE_UNITS", "ObjectiveName", "compute_coordinate"]

ObjectiveName = Literal["value", "parameters", "multiply_adds", "state", "memory", "tokens_per_second"]

DEFAULT_OBJECTIVES: tuple[ObjectiveName, ...] = ("value", "parameters")
"""Of the front of a study that names no objectives."""
SIZE_UNITS: Mapping[ObjectiveName, str] = {
    "parameters": "parameters",
    "multiply_adds": "multiply-adds per token",
    "state": "numbers of state",
    "memory": "bytes in training",
    "tokens_per_second": "tokens per second and core",
}


def compute_coordinate(objective: ObjectiveName, quantity: float | None) -> float:
    """The coordinate of a cost or a size, lower is better; infinite for an unknown one.

    >>> compute_coordinate("parameters", 1024), compute_coordinate("tokens_per_second", 1024)
    (10.0, -10.0)
    """
    if quantity is None:
        return math.inf
    if objective == "value":
        return quantity
    if objective == "tokens_per_second":
        return -math.log2(quantity)
    return math.log2(max(1.0, quantity))
