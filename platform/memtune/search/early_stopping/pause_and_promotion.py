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

from memtune.search.early_stopping.rule import CONTINUE, Action, Decision, Rule
from memtune.search.early_stopping.rungs import PROTECTED_TRIALS, RungConfig, Rungs
from memtune.search.trial_store import StoredTrial
from memtune.trial_state import TrialState


class PromotionConfig(RungConfig):
    """A trial pauses at each rung until it is among the best of the rung."""

    title: ClassVar[str] = "pause and promotion"
    kind: Literal["promotion"] = "promotion"

    def make_rule(self, trial_tokens: int) -> "Promotion":
        """The rule with its rungs below `trial_tokens`."""
        return Promotion(self, trial_tokens)


class Promotion(Rule):
    """The rungs of one study, and the trials that wait at them."""

    def __init__(self, config: PromotionConfig, trial_tokens: int) -> None:
        self._rungs = Rungs(config, trial_tokens)
        self._max_survivors = config.max_survivors
        self._waiting: dict[int, int] = {}
        """Number of a trial -> index of the rung at which it waits."""

    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        """Pause the trial at a rung unless it is the one that would be promoted next."""
        if reached := self._rungs.record(number, alternative, tokens, value):
            self._waiting[number] = reached[-1]
            if self._find_promotable(least=0) == number:
                self.resume(number)
        if number not in self._waiting:
            return CONTINUE
        place = self._rungs.get_rank(number, self._waiting[number], least=0)
        return Decision(Action.PAUSE, f"promotion: {place}")

    def choose_resumed(self, running: Collection[int], is_sampling_over: bool) -> int | None:
        """The best paused trial of the highest rung that may promote one."""
        return self._find_promotable(least=1 if is_sampling_over and not running else 0)

    def resume(self, number: int) -> None:
        """The trial is promoted."""
        self._waiting.pop(number, None)

    def end(self, number: int) -> None:
        """The trial is not promoted any more."""
        self.resume(number)

    def replay(self, outcomes: Iterable[StoredTrial]) -> None:
        """Fill the rungs from the recorded curves; paused trials wait at the last rung they reached."""
        for outcome in outcomes:
            reached = self._rungs.replay(outcome)
            if outcome.state is TrialState.PAUSED:
                self._waiting[outcome.number] = reached - 1

    def _find_promotable(self, least: int) -> int | None:
        """The best trial of the highest rung that may promote one.

        Each rung may promote `least` trials in any case, and so many of each alternative that it protects.
        """
        limit = self._max_survivors and max(least, self._max_survivors, PROTECTED_TRIALS)
        for index in reversed(range(len(self._rungs))):
            for number in self._rungs[index].iterate_best(limit):
                if self._waiting.get(number) == index and self._rungs.get_rank(number, index, least).passes:
                    return number
        return None
