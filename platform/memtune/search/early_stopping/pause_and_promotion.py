"""Asynchronous successive halving that pauses trials and promotes the best of them.

Li et al. (2020), "A System for Massively Parallel Hyperparameter Tuning", algorithm 2: every trial pauses at
each rung. A free worker continues the best paused trial of the highest rung that has one among the best
1/factor of its values, and starts a new trial where no rung has one. A trial that was average when it came
may be continued later, when worse ones have come: a decision is never final.

Three things are not in the paper. `max_survivors` caps the trials that a rung promotes. A trial that would be
continued at once is not paused, which saves reading its checkpoint. Once no new trial starts, and all trials
that will have reached a rung, the best two continue from it, and the best of each alternative: a short study
has complete trials to compare.
"""

from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import ClassVar, Literal

from memtune.search.early_stopping.rule import CONTINUE, Action, Decision, Rule
from memtune.search.early_stopping.rungs import RungConfig, Rungs
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
        self._waiting: dict[int, int] = {}
        """Number of a trial -> index of the rung at which it waits."""

    def decide(self, number: int, alternative: str, tokens: int, value: float) -> Decision:
        """Pause the trial at a rung unless it is the one that would be promoted next."""
        if reached := self._rungs.record(number, alternative, tokens, value):
            self._waiting[number] = reached[-1]
            if self._find_promotable() == number:
                self.resume(number)
        if number not in self._waiting:
            return CONTINUE
        place = self._rungs.get_rank(number, self._waiting[number], can_wait=True)
        return Decision(Action.PAUSE, f"promotion: {place}")

    def choose_resumed(self, running: Collection[int], is_sampling_over: bool) -> int | None:
        """The best paused trial of the highest rung that may promote one, or one that the study ends with."""
        found = self._find_promotable()
        if found is not None or not is_sampling_over:
            return found
        final = takewhile(
            lambda index: all(number in self._rungs[index].values for number in running),
            range(len(self._rungs)),
        )
        return self._find_promotable(final, are_final=True)

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

    def _find_promotable(
        self, indices: Iterable[int] | None = None, *, are_final: bool = False
    ) -> int | None:
        """The best trial of the first rung that may promote one; of all rungs, the highest comes first."""
        for index in reversed(range(len(self._rungs))) if indices is None else indices:
            for number in self._rungs.list_survivors(index, is_final=are_final):
                if self._waiting.get(number) == index:
                    return number
        return None
