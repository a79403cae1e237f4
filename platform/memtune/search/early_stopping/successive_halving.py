"""Asynchronous successive halving that stops trials.

Li et al. (2020), "A System for Massively Parallel Hyperparameter Tuning", in the stopping form of Klein et
al. (2020), "Model-based Asynchronous Hyperparameter and Neural Architecture Search": a trial that reaches a
rung continues if its value is among the best 1/factor of the rung's values. It also continues while fewer
than `factor` trials have reached the rung.

`max_survivors` is not in these papers. A third of all trials that ever reached a rung may be many, and a
sampler that proposes near-copies of a good trial gets each of them through every rung. With an absolute cap a
trial must also be among the best few.

Trials do not wait for each other, so their order matters: a trial is compared with earlier ones, and a
decision is final. An early trial passes more easily than a late one with the same value. The values of a
rung do not depend on the order.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from memtune.search.early_stopping.rule import CONTINUE, Action, Decision, EarlyStopping
from memtune.search.early_stopping.rungs import Rung, list_rung_tokens
from memtune.search.outcomes import Outcome
from memtune.trial_state import TrialState

__all__ = ["SuccessiveHalving", "SuccessiveHalvingConfig"]


class SuccessiveHalvingConfig(EarlyStopping):
    """First rung after `grace` tokens, each next one `factor` times as far.

    A trial passes a rung if it is among the best 1/factor of the trials that have reached it and among the
    best `max_survivors` of them.
    """

    kind: Literal["successive_halving"] = "successive_halving"
    grace: int = Field(ge=1)
    factor: int = Field(default=3, ge=2)
    max_survivors: int = Field(default=4, ge=1)

    def make_rule(self, trial_tokens: int) -> "SuccessiveHalving":
        """The rule with its rungs below `trial_tokens`."""
        return SuccessiveHalving(self, trial_tokens)

    def describe(self) -> str:
        """The rule in a few words."""
        return f"successive halving after {self.grace:,}"

    def get_problem(self, trial_tokens: int) -> str | None:
        """Why no trial would be stopped, or None."""
        if self.grace < trial_tokens:
            return None
        return (
            f"{self.kind} would stop no trial, because early_stopping.grace = {self.grace:,} and a trial has "
            f"{trial_tokens:,} tokens; lower grace or leave [early_stopping] out"
        )


class SuccessiveHalving:
    """The rungs of one study; lower values are better."""

    def __init__(self, config: SuccessiveHalvingConfig, trial_tokens: int) -> None:
        self.config = config
        self.rungs = [Rung(tokens) for tokens in list_rung_tokens(config.grace, config.factor, trial_tokens)]
        self._stops: dict[int, Decision] = {}

    def decide(self, number: int, family: str, tokens: int, value: float) -> Decision:
        """Stop the trial unless it is good enough at each rung that the report passes.

        A trial counts once at each rung, so a repeated report changes nothing.
        """
        for rung in self._record(number, tokens, value):
            survivors = self._count_survivors(rung)
            rank = rung.get_rank(number)
            if rank > survivors and number not in self._stops:
                reason = (
                    f"successive halving: rank {rank} of {len(rung)} at the rung of {rung.tokens:,}, "
                    f"ranks up to {survivors} continue"
                )
                self._stops[number] = Decision(Action.STOP, reason)
        return self._stops.get(number, CONTINUE)

    def replay(self, outcomes: Iterable[Outcome]) -> None:
        """Fill the rungs from the recorded curves; stopped trials stay stopped."""
        for outcome in outcomes:
            for tokens, value in sorted(outcome.curve.items()):
                self._record(outcome.number, tokens, value)
            if outcome.state is TrialState.STOPPED:
                self._stops[outcome.number] = Decision(Action.STOP, "stopped before")

    def _record(self, number: int, tokens: int, value: float) -> list[Rung]:
        """Add the report to the rungs that the trial reaches with it; return those."""
        reached = [rung for rung in self.rungs if rung.tokens <= tokens and number not in rung]
        for rung in reached:
            rung.add(number, value)
        return reached

    def _count_survivors(self, rung: Rung) -> int:
        """How many of the trials of a rung may continue."""
        share = len(rung) if len(rung) < self.config.factor else len(rung) // self.config.factor
        return min(share, self.config.max_survivors)
