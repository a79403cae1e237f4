"""Asynchronous successive halving on tokens seen: which trials continue.

Li et al. (2020), "A System for Massively Parallel Hyperparameter Tuning", in the stopping form of Klein et
al. (2020), "Model-based Asynchronous Hyperparameter and Neural Architecture Search": a trial that reaches a
rung continues if its value is among the best 1/factor of the rung's values. It also continues while fewer
than `factor` trials have reached the rung.

Trials do not wait for each other, so their order matters: a trial is compared with earlier ones, and a
decision is final. An early trial passes more easily than a late one with the same value. The values of a
rung do not depend on the order.
"""

import math
from bisect import insort
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from memtune.search.outcomes import Outcome
from memtune.trial_state import TrialState
from memtune.values import Value

__all__ = ["HalvingConfig", "SuccessiveHalving"]


class HalvingConfig(Value):
    """First rung after `grace` tokens, each next one `factor` times as far; the best 1/factor pass a rung."""

    kind: Literal["successive_halving"] = "successive_halving"
    grace: int = Field(ge=1)
    factor: int = Field(default=3, ge=2)


class SuccessiveHalving:
    """The rungs of one study; lower values are better.

    `rungs` are grace, grace * factor, ... below the budget, at which a trial is complete.
    """

    def __init__(self, config: HalvingConfig, budget_tokens: int) -> None:
        self.config = config
        self.rungs = _compute_rungs(config, budget_tokens)
        self._values: dict[int, dict[int, float]] = {rung: {} for rung in self.rungs}
        self._sorted: dict[int, list[float]] = {rung: [] for rung in self.rungs}
        self._stopped_numbers: set[int] = set()

    def get_values(self, rung: int) -> dict[int, float]:
        """Value at a rung by trial number: each trial's first report at or past it."""
        return dict(self._values[rung])

    def decide(self, number: int, tokens: int, value: float) -> bool:
        """Whether the trial continues after a report of `value` (NaN is the worst) at `tokens` seen.

        A report that passes several rungs must be good enough at each. A trial counts once at each rung, so a
        repeated report changes nothing.
        """
        reached = self._record(number, tokens, value)
        if not all(self._can_pass(number, rung) for rung in reached):
            self._stopped_numbers.add(number)
        return number not in self._stopped_numbers

    def replay(self, outcomes: Iterable[Outcome]) -> None:
        """Fill the rungs from recorded curves, as the live reports did; stopped trials stay stopped."""
        for outcome in outcomes:
            for tokens, value in sorted(outcome.curve.items()):
                self._record(outcome.number, tokens, value)
            if outcome.state is TrialState.STOPPED:
                self._stopped_numbers.add(outcome.number)

    def _record(self, number: int, tokens: int, value: float) -> list[int]:
        reached = [rung for rung in self.rungs if rung <= tokens and number not in self._values[rung]]
        for rung in reached:
            self._values[rung][number] = math.inf if math.isnan(value) else value
            insort(self._sorted[rung], self._values[rung][number])
        return reached

    def _can_pass(self, number: int, rung: int) -> bool:
        values = self._values[rung]
        if len(values) < self.config.factor:
            return True
        return values[number] <= self._sorted[rung][len(values) // self.config.factor - 1]


def _compute_rungs(config: HalvingConfig, budget_tokens: int) -> tuple[int, ...]:
    rungs = []
    rung = config.grace
    while rung < budget_tokens:
        rungs.append(rung)
        rung *= config.factor
    return tuple(rungs)
