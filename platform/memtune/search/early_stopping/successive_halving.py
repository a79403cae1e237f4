"""Asynchronous successive halving that stops trials.

Li et al. (2020), "A System for Massively Parallel Hyperparameter Tuning", in the stopping form of Klein et
al. (2020), "Model-based Asynchronous Hyperparameter and Neural Architecture Search": a trial that reaches a
rung continues if its value is among the best 1/factor of the rung's values. It also continues while fewer
than `factor` trials have reached the rung.

The first rung is at a quarter of a trial unless the study names another, and half of the trials pass a rung.
At the first report the order of trials may say little about their order at the end
(docs/results/search_comparison_cpu_2026-11-23.md).

`max_survivors` is not in these papers. A share of all trials that ever reached a rung may be many, and a
sampler that proposes near-copies of a good trial gets each of them through every rung. With an absolute cap a
trial must also be among the best few.

Trials do not wait for each other, so their order matters: a trial is compared with earlier ones, and a
decision is final. An early trial passes more easily than a late one with the same value. The values of a
rung do not depend on the order.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

from pydantic import Field

from memtune.search.early_stopping.rule import CONTINUE, Action, Decision, Rule
from memtune.search.early_stopping.rungs import RungConfig, Rungs
from memtune.search.trial_store import StoredTrial
from memtune.trial_state import TrialState


class SuccessiveHalvingConfig(RungConfig):
    """A trial that reaches a rung continues or is stopped permanently."""

    title: ClassVar[str] = "successive halving"
    kind: Literal["successive_halving"] = "successive_halving"
    factor: int = Field(default=2, ge=2)
    """Factor between two rungs, and the reciprocal of the share of trials that continue."""
    max_survivors: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "trials"})
    """Number of trials that continue at a rung, at most; default: no limit."""

    def make_rule(self, trial_tokens: int) -> "SuccessiveHalving":
        """The rule with its rungs below `trial_tokens`."""
        return SuccessiveHalving(self, trial_tokens)


class SuccessiveHalving(Rule):
    """The rungs of one study, and the trials stopped there."""

    def __init__(self, config: SuccessiveHalvingConfig, trial_tokens: int) -> None:
        self.rungs = Rungs(config, trial_tokens)
        self._stops: dict[int, Decision] = {}

    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        """Stop the trial unless it is good enough at each rung that the report reaches."""
        for index in self.rungs.record(number, alternative, tokens, value):
            place = self.rungs.get_rank(number, index)
            if number not in self._stops and not place.passes:
                reason = f"successive halving: {place}"
                self._stops[number] = Decision(Action.STOP, reason)
        return self._stops.get(number, CONTINUE)

    def replay(self, outcomes: Iterable[StoredTrial]) -> None:
        """Fill the rungs from the recorded curves; stopped trials stay stopped."""
        for outcome in outcomes:
            self.rungs.replay(outcome)
            if outcome.state is TrialState.STOPPED:
                self._stops[outcome.number] = Decision(Action.STOP, "stopped before")
