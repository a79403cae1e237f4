"""The same part of the budget for every trial, then the best few are trained to the end.

Egele et al. (2024), "The Unreasonable Effectiveness of Early Discarding after One Epoch in Neural Network
Hyperparameter Optimization" (arXiv:2404.04111): hard to beat by rules with more parameters, so every other
rule should be compared with it. The paper's fraction is i epochs and it trains the best three again from
scratch; here they continue from their checkpoints.
"""

import math
from collections.abc import Collection, Iterable
from typing import Literal

from pydantic import Field

from memtune.search.early_stopping.rule import CONTINUE, Action, Decision, EarlyStopping, Rule
from memtune.search.early_stopping.rungs import Rung
from memtune.search.outcomes import Outcome
from memtune.trial_state import TrialState

__all__ = ["ConstantBudget", "ConstantBudgetConfig"]


class ConstantBudgetConfig(EarlyStopping):
    """Every trial pauses after `share` of its tokens; then the best `finalists` train to the end."""

    kind: Literal["constant_budget"] = "constant_budget"
    share: float = Field(default=0.2, gt=0, lt=1)
    """Share of its tokens after which each trial pauses."""
    finalists: int = Field(default=3, ge=1)
    """Number of trials that train to the end."""

    def make_rule(self, trial_tokens: int) -> "ConstantBudget":
        """The rule with its pause within `trial_tokens`."""
        return ConstantBudget(self, trial_tokens)

    def describe(self) -> str:
        """The rule in a few words."""
        return f"constant budget of {self.share:.0%} with {self.finalists} finalists"


class ConstantBudget(Rule):
    """The trials that wait for the end of the sampling, and the finalists."""

    can_pause = True

    def __init__(self, config: ConstantBudgetConfig, trial_tokens: int) -> None:
        self._config = config
        self._rung = Rung(math.ceil(config.share * trial_tokens))
        self._waiting: set[int] = set()
        self._finalists: set[int] = set()

    def decide(self, number: int, family: str, tokens: int, value: float) -> Decision:
        """Pause the trial at its share of the tokens."""
        if tokens >= self._rung.tokens and number not in self._rung.values:
            self._rung.add(number, "", value)
            self._waiting.add(number)
        if number not in self._waiting:
            return CONTINUE
        reason = f"the best {self._config.finalists} continue when all trials have {self._rung.tokens:,}"
        return Decision(Action.PAUSE, f"constant budget: {reason}")

    def choose_resumed(self, running: Collection[int], is_sampling_over: bool) -> int | None:
        """The best finalist that waits, once every trial has used its share."""
        if not is_sampling_over or not self._finalists.issuperset(running):
            return None
        finalists = self._rung.iterate_best(self._config.finalists)
        return next((number for number in finalists if number in self._waiting), None)

    def resume(self, number: int) -> None:
        """The trial is a finalist."""
        self._waiting.discard(number)
        self._finalists.add(number)

    def end(self, number: int) -> None:
        """The trial is not a finalist any more."""
        self._waiting.discard(number)

    def replay(self, outcomes: Iterable[Outcome]) -> None:
        """Restore values and states; a running trial past its share is a finalist."""
        for outcome in outcomes:
            reports = (report for report in sorted(outcome.curve.items()) if report[0] >= self._rung.tokens)
            first = next(reports, None)
            if first is None:
                continue
            self._rung.add(outcome.number, "", first[1])
            if outcome.state is TrialState.PAUSED:
                self._waiting.add(outcome.number)
            elif outcome.state is TrialState.RUNNING:
                self._finalists.add(outcome.number)
