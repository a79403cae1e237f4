"""The trials of a study, from their proposal to their outcome.

Inside memtune every objective is a coordinate that is better the lower it is: the cost of the value, and the
binary logarithm of a size, so that half the size counts as much for small models as for large ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from memtune.spaces import Scalar
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


@dataclass(frozen=True)
class Outcome:
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
