"""Learning rate schedules, as defined in the papers.

A schedule is a pure function of the trial's position, so checkpoints hold no state of a schedule and a
resumed trial has the same rates. Epochs are counted from 1 here, as in the papers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import cos, pi
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from memtune.values import Value


@dataclass(frozen=True)
class SchedulePosition:
    """Position of a trial at a step."""

    epoch: int
    """Current epoch, counted from 1."""
    updates: int
    """Steps taken so far."""
    valid_costs: Sequence[float]
    """Validation costs of the reports so far, oldest first; lower is better."""
    budget_share: float = 0.0
    """Share of the budget that is used after this step, from above 0 to 1."""


class ConstantSchedule(Value):
    """A constant learning rate."""

    kind: Literal["constant"] = "constant"

    def scale(self, position: SchedulePosition) -> float:
        """1."""
        return 1.0


class StepSchedule(Value):
    """`hold_epochs` epochs at the full rate; from then on each epoch's rate is `factor` times the one before.

    Tran et al. (2016) write "halved at each epoch after the fourth": hold_epochs = 4, so epoch 5 is the first
    at half the rate; so does the small model of Zaremba et al. (2014). The code released with Tran et al.
    halves once epoch 5 is over: hold_epochs = 5. Zaremba's large model: factor = 1 / 1.15, hold_epochs = 14.
    """

    kind: Literal["step"] = "step"
    factor: float = Field(0.5, gt=0, le=1)
    """Factor of the rate for each epoch after `hold_epochs`."""
    hold_epochs: int = Field(4, ge=0, json_schema_extra={"unit": "epochs"})
    """Epochs at the full rate."""

    def scale(self, position: SchedulePosition) -> float:
        """factor to the power of the number of epochs after `hold_epochs`, the current one included."""
        return float(self.factor ** max(0, position.epoch - self.hold_epochs))


class PlateauSchedule(Value):
    """The rate is multiplied by `factor` after each report whose validation cost is not the best so far."""

    kind: Literal["plateau"] = "plateau"
    factor: float = Field(0.5, gt=0, lt=1)
    """Factor of the rate for each report without an improvement."""

    def scale(self, position: SchedulePosition) -> float:
        """factor to the power of the number of reports without improvement."""
        losses = position.valid_costs
        unimproved = sum(
            loss >= best for loss, best in zip(losses[1:], accumulate(losses, min), strict=False)
        )
        return float(self.factor**unimproved)


class InverseSchedule(Value):
    """The rate is divided by 1 + decay * updates (Robbins and Monro 1951)."""

    kind: Literal["inverse"] = "inverse"
    decay: float = Field(gt=0, json_schema_extra={"unit": "1 per step"})
    """Growth of the divisor per step."""

    def scale(self, position: SchedulePosition) -> float:
        """1 / (1 + decay * updates)."""
        return 1.0 / (1.0 + self.decay * position.updates)


class WarmupSchedule(Value):
    """The rate rises over a first share of the budget, stays, and falls over a last share.

    With warmup + cooldown = 1 it is the cosine schedule of Transformers, or a linear one; with a short
    cooldown it is warm-up, stable, decay (Hu et al. 2024, MiniCPM). The shares scale with the budget.
    """

    kind: Literal["warmup"] = "warmup"
    warmup: float = Field(0.05, ge=0, le=1, json_schema_extra={"unit": "share of the budget"})
    """Share of the budget over which the rate rises from 0, linearly."""
    cooldown: float = Field(0.95, ge=0, le=1, json_schema_extra={"unit": "share of the budget"})
    """Share of the budget over which the rate falls, at its end."""
    shape: Literal["cosine", "linear"] = "cosine"
    """How the rate falls."""
    final: float = Field(0.1, ge=0, le=1)
    """Factor of the rate at the end of the budget."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.warmup + self.cooldown > 1 + 1e-9:
            raise ValueError(
                f"warmup = {self.warmup} and cooldown = {self.cooldown} are shares of one budget; lower one"
            )
        return self

    def scale(self, position: SchedulePosition) -> float:
        """The factor of a position's share of the budget."""
        share = min(position.budget_share, 1.0)
        rise = min(1.0, share / self.warmup) if self.warmup else 1.0
        left = min(1.0, (1 - share) / self.cooldown) if self.cooldown else 1.0
        fall = (1 - cos(pi * left)) / 2 if self.shape == "cosine" else left
        return rise * (self.final + (1 - self.final) * fall)


Schedule = Annotated[
    ConstantSchedule | StepSchedule | PlateauSchedule | InverseSchedule | WarmupSchedule,
    Field(discriminator="kind"),
]
