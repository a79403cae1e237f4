"""Asynchronous successive halving that pauses trials and promotes the best of them.

Li et al. (2020), "A System for Massively Parallel Hyperparameter Tuning", algorithm 2: every trial pauses at
each rung. A free worker continues the best paused trial of the highest rung that has one among the best
1/factor of its values, and starts a new trial where no rung has one. A trial that was average when it came
may be continued later, when worse ones have come: a decision is never final.

Three things are not in the paper. `max_survivors` caps the trials that a rung promotes. A trial that would be
continued at once is not paused, which saves reading its checkpoint. Once no new trial starts and none runs,
the best trial of a rung may always continue, so that a short study has a complete trial.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar, Literal

from pydantic import Field

from memtune.search.early_stopping.paused_trials import PausedTrials
from memtune.search.early_stopping.rule import Decision, Rule
from memtune.search.early_stopping.rungs import RungConfig
from memtune.search.outcomes import Outcome

__all__ = ["Promotion", "PromotionConfig"]


class PromotionConfig(RungConfig):
    """A trial pauses at each rung until it is among the best of the rung."""

    default_grace_share: ClassVar[float] = 1 / 4

    kind: Literal["promotion"] = "promotion"
    grace: int | None = Field(default=None, ge=1)
    """Predicted tokens of the first rung; default: a quarter of a trial's."""

    def make_rule(self, trial_tokens: int) -> "Promotion":
        """The rule with its rungs below `trial_tokens`."""
        return Promotion(self, trial_tokens)

    def describe(self) -> str:
        """The rule in a few words."""
        return self.describe_start("pause and promotion")


class Promotion(Rule):
    """The rungs of one study, and the trials that wait at them."""

    can_pause = True

    def __init__(self, config: PromotionConfig, trial_tokens: int) -> None:
        self._paused = PausedTrials(config, trial_tokens)

    def decide(self, number: int, family: str, tokens: int, value: float) -> Decision:
        """Pause the trial at a rung unless it is the one that would be promoted next."""
        has_paused = self._paused.pause_at_rung(number, family, tokens, value)
        if has_paused and self._find_promotable(least=0) == number:
            self._paused.resume(number)
        return self._paused.decide(number, "promotion")

    def choose_resumed(self, running: Collection[int], is_sampling_over: bool) -> int | None:
        """The best paused trial of the highest rung that may promote one."""
        return self._find_promotable(least=1 if is_sampling_over and not running else 0)

    def resume(self, number: int) -> None:
        """The trial is promoted."""
        self._paused.resume(number)

    def end(self, number: int) -> None:
        """The trial is not promoted any more."""
        self._paused.resume(number)

    def replay(self, outcomes: Iterable[Outcome]) -> None:
        """Fill the rungs from the recorded curves; paused trials wait at the last rung they reached."""
        for outcome in outcomes:
            self._paused.replay(outcome)

    def _find_promotable(self, least: int) -> int | None:
        return self._paused.find_promotable(least, len(self._paused.rungs))
