"""What a study proposes and what became of it."""

from dataclasses import dataclass, field
from typing import Any, Literal

from memtune.spaces import Scalar

__all__ = ["Outcome", "Proposal", "State"]

State = Literal["running", "complete", "pruned", "failed", "refused", "duplicate"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A trial to run: its number in the study, what was sampled, and the whole configuration."""

    number: int
    parameters: dict[str, Scalar]
    configuration: dict[str, Any]
    identity: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial of the study as it stands.

    `value` is the final one of a complete trial and the last one of a pruned one, lower is better; `curve`
    the reported values by tokens seen; `reason` why it was stopped, failed, refused or not run again.
    """

    number: int
    identity: str
    configuration: dict[str, Any]
    state: State
    value: float | None = None
    curve: dict[int, float] = field(default_factory=dict)
    reason: str | None = None
