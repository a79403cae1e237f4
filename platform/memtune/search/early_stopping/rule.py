"""The interface of an early-stopping rule: which trials continue, stop, or wait with their checkpoint.

A rule works on tokens and on the values that trials report. It knows neither a clock nor Optuna. Its state
follows from the trials' recorded curves and states, so that a rule that replays them decides as the rule of
the driver that recorded them.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

from memtune.plugins import PluginConfig
from memtune.search.trial_store import StoredTrial


class Action(StrEnum):
    """What a trial does after a report."""

    CONTINUE = "continue"
    STOP = "stop"
    """End the trial permanently."""
    PAUSE = "pause"
    """Keep the trial's checkpoint; the rule may choose the trial to continue later."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a trial does after a report, and why, for readers."""

    action: Action
    reason: str = ""


CONTINUE = Decision(Action.CONTINUE)


class Rule(ABC):
    """The early stopping of one study. A rule that never pauses needs `decide` and `replay` only."""

    @abstractmethod
    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        """What a trial does after a report of `value` (lower is better, NaN is the worst) at `tokens` seen.

        `alternative` is what the trial answers: its family, or its value of the compared field. A
        repeated report changes nothing. A trial that has been stopped or paused gets the same decision
        again until it is resumed.
        """

    @abstractmethod
    def replay(self, outcomes: Iterable[StoredTrial]) -> None:
        """Restore the state from the recorded trials, with their `alternative`, before the first decision."""

    def choose_resumed(self, running: Collection[int], is_sampling_over: bool) -> int | None:
        """The paused trial that should continue before any other trial starts; None where none should.

        `running` are the numbers of the open trials; `is_sampling_over` says that no new trial will start.
        """
        return None

    def resume(self, number: int) -> None:  # noqa: B027
        """The paused trial continues."""

    def end(self, number: int) -> None:  # noqa: B027
        """The trial has ended, for any reason."""


class EarlyStopping(PluginConfig):
    """The settings of a rule in a study file; `kind` names the rule."""

    kind: str

    @abstractmethod
    def make_rule(self, trial_tokens: int) -> Rule:
        """The rule of a study whose trials train on at most `trial_tokens`."""

    @abstractmethod
    def describe(self) -> str:
        """The rule in a few words."""

    def fill_defaults(self, first_report: int, trial_tokens: int) -> Self:
        """The settings with what the study leaves out.

        Its trials train on `trial_tokens` and report first after `first_report` tokens.
        """
        return self

    def get_problem(self, trial_tokens: int) -> str | None:
        """Why the rule has no effect on trials of `trial_tokens`, or None."""
        return None


class NoEarlyStoppingConfig(EarlyStopping):
    """Every trial trains on its whole budget."""

    kind: Literal["none"] = "none"

    def make_rule(self, trial_tokens: int) -> "NoEarlyStopping":
        """A rule that stops no trial."""
        return NoEarlyStopping()

    def describe(self) -> str:
        """The rule in a few words."""
        return "no early stopping"


class NoEarlyStopping(Rule):
    """Continues every trial."""

    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        """Continue."""
        return CONTINUE

    def replay(self, outcomes: Iterable[StoredTrial]) -> None:
        """There is no state."""
