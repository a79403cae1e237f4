"""A rule of early stopping: stop a trial that is worse than the median of the others after as many tokens.

Golovin et al. (2017), "Google Vizier: A Service for Black-Box Optimization", section 3.2.
"""

from collections.abc import Iterable
from statistics import median
from typing import Literal

from pydantic import Field

from memtune.search import EarlyStopping, Rule, StoredTrial
from memtune.search.early_stopping import CONTINUE, Action, Decision

__all__ = ["Median", "MedianConfig"]


class MedianConfig(EarlyStopping):
    """Stop a trial below the median of `min_trials` others."""

    kind: Literal["median"] = "median"
    min_trials: int = Field(default=3, ge=1, description="other trials with a value at as many tokens")

    def make_rule(self, trial_tokens: int) -> "Median":
        """The rule of a study; trials at their end are not stopped."""
        return Median(self, trial_tokens)

    def describe(self) -> str:
        """The rule in a few words."""
        return f"median of {self.min_trials} trials"


class Median(Rule):
    """The curves of all trials."""

    def __init__(self, config: MedianConfig, trial_tokens: int) -> None:
        self._config, self._trial_tokens = config, trial_tokens
        self._curves: dict[int, dict[int, float]] = {}

    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        """Stop the trial where it is worse than the median of the others."""
        self._curves.setdefault(number, {})[tokens] = value
        others = [
            curve[tokens] for other, curve in self._curves.items() if other != number and tokens in curve
        ]
        if tokens >= self._trial_tokens or len(others) < self._config.min_trials or value <= median(others):
            return CONTINUE
        return Decision(Action.STOP, f"worse than the median {median(others):.4g} of {len(others)} trials")

    def replay(self, outcomes: Iterable[StoredTrial]) -> None:
        """The curves of recorded trials."""
        for outcome in outcomes:
            self._curves[outcome.number] = dict(outcome.curve)
