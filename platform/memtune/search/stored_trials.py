"""The trials of a study, from their proposal to their outcome.

Inside memtune every objective is a coordinate that is better the lower it is: the cost of the value, and the
binary logarithm of a size, so that half the size counts as much for small models as for large ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from memtune.spaces import SIZE_NOUNS, Scalar
from memtune.trial_state import TrialEnd, TrialState
from memtune.usage import Usage
from memtune.values import parse

if TYPE_CHECKING:
    from memtune.training import TrialConfig

ObjectiveName = Literal["value", "parameters", "multiply_adds", "state", "memory", "tokens_per_second"]

Sizes = Mapping[str, int | None]
"""What a model takes, by name (`TrialSizes`)."""
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
"""What trades off against the value, by name. A study may name those of ObjectiveName as objectives."""


@dataclass(frozen=True)
class StoredTrial:
    """The present state of a trial, from the proposal of the sampler on.

    `value` is the final value of a complete trial and the last one of a stopped trial, lower is better;
    `curve` has the reported values by tokens seen; `end` says why a trial was stopped, paused or failed,
    `usage` what it has used, `remark` why a proposal was refused or which trial it repeats.
    """

    number: int
    identity: str
    configuration: dict[str, Any]
    state: TrialState
    value: float | None = None
    curve: dict[int, float] = field(default_factory=dict)
    end: TrialEnd | None = None
    remark: str | None = None
    usage: Usage = field(default_factory=Usage)
    sizes: Sizes = field(default_factory=dict)
    """Of a user's family, whose source is not at hand where the study is read; else empty."""
    parameters: dict[str, Scalar] = field(default_factory=dict)
    """Of the space, as they were sampled, by name."""
    is_led: bool = False
    """Whether a prior led the sampler to it; False in studies of earlier versions."""
    alternative: str = ""
    """What the trial answers; empty as read from storage, which does not know what the study compares."""

    @property
    def family(self) -> str:
        """The family of the trial's model; empty in a configuration without one."""
        return str(self.configuration.get("model", {}).get("family", ""))

    @cached_property
    def config(self) -> "TrialConfig":
        """The configuration as a value. Raises ConfigurationError for one of another version of memtune."""
        # Imported here: it imports PyTorch, and lists of studies need no configuration.
        from memtune.training import TrialConfig

        config: TrialConfig = parse(TrialConfig, self.configuration, f"trial {self.number}")
        return config
