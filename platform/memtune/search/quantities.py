"""What trades off against the value of a configuration: its sizes, its speed and its hours.

Inside memtune every objective is a coordinate that is better the lower it is: the cost of the value, and the
binary logarithm of a size, so that half the size counts as much for small models as for large ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memtune.spaces import SIZE_NOUNS

ObjectiveName = Literal["value", "parameters", "multiply_adds", "state", "memory", "tokens_per_second"]
DEFAULT_OBJECTIVES: tuple[ObjectiveName, ...] = ("value", "parameters")
"""Of the front of a study that names no objectives."""


@dataclass(frozen=True)
class Quantity:
    """An amount by which configurations are compared."""

    unit: str = ""
    """In words; the value has the unit of its study's figures."""
    is_size: bool = False
    """Whether `TrialSizes` has it; else the trial has it."""
    is_spent: bool = False
    """Whether the amounts of a configuration's seeds add up."""
    is_higher_better: bool = False

    def name_unit(self, predicted: str) -> str:
        """The unit for a task whose predictions are `predicted`: tokens or examples."""
        return self.unit.replace("tokens", predicted)

    def compute_coordinate(self, amount: float | None) -> float:
        """The coordinate of an amount, lower is better; infinite for an unknown one."""
        if amount is None:
            return math.inf
        if self.is_higher_better:
            return -math.log2(amount)
        return math.log2(max(1.0, amount)) if self.is_size else amount


QUANTITIES: Mapping[str, Quantity] = {
    "value": Quantity(),
    **{str(kind): Quantity(noun, is_size=True) for kind, noun in SIZE_NOUNS.items()},
    "memory": Quantity("bytes in training", is_size=True),
    "tokens_per_second": Quantity("tokens per second and core", is_higher_better=True),
    "cpu_hours": Quantity("core hours per seed", is_spent=True),
    "gpu_hours": Quantity("GPU hours per seed", is_spent=True),
}
"""By name. A study may name those of ObjectiveName as objectives."""
