"""No early stopping: every trial trains on its whole budget."""

from collections.abc import Iterable
from typing import Literal

from memtune.search.early_stopping.rule import CONTINUE, Decision, EarlyStopping, Rule
from memtune.search.outcomes import Outcome

__all__ = ["NoEarlyStopping", "NoEarlyStoppingConfig"]


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

    def decide(self, number: int, family: str, tokens: int, value: float) -> Decision:
        """Continue."""
        return CONTINUE

    def replay(self, outcomes: Iterable[Outcome]) -> None:
        """There is no state."""
