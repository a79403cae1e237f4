"""Trials that wait at the rungs of a study, and the choice of the next one to promote."""

from memtune.search.early_stopping.rule import CONTINUE, Action, Decision
from memtune.search.early_stopping.rungs import PROTECTED_TRIALS, RungConfig, Rungs
from memtune.search.outcomes import Outcome
from memtune.trial_state import TrialState

__all__ = ["PausedTrials"]


class PausedTrials:
    """The rungs of one study and the trials that wait there."""

    def __init__(self, config: RungConfig, trial_tokens: int) -> None:
        self.rungs = Rungs(config, trial_tokens)
        self._max_survivors = config.max_survivors
        self._waiting: dict[int, int] = {}

    def pause_at_rung(self, number: int, family: str, tokens: int, value: float) -> bool:
        """Let the trial wait at the highest rung that it reaches with this report; return whether it does."""
        reached = self.rungs.record(number, family, tokens, value)
        if reached:
            self._waiting[number] = reached[-1]
        return bool(reached)

    def resume(self, number: int) -> None:
        """The trial waits no longer; it may have ended."""
        self._waiting.pop(number, None)

    def replay(self, outcome: Outcome) -> None:
        """Add a recorded trial; a paused one waits at the last rung that it has reached."""
        reached = self.rungs.replay(outcome)
        if outcome.state is TrialState.PAUSED:
            self._waiting[outcome.number] = reached - 1

    def find_promotable(self, least: int, end: int) -> int | None:
        """The best trial of the highest rung below index `end` that may promote one.

        Each rung may promote `least` trials in any case, and so many of each family that it protects.
        """
        limit = self._max_survivors and max(least, self._max_survivors, PROTECTED_TRIALS)
        for index in reversed(range(end)):
            for number in self.rungs[index].iterate_best(limit):
                if self._waiting.get(number) == index and self.rungs.get_rank(number, index, least).passes:
                    return number
        return None

    def decide(self, number: int, name: str) -> Decision:
        """Pause the trial while it waits; `name` is the rule's."""
        if number not in self._waiting:
            return CONTINUE
        index = self._waiting[number]
        place = self.rungs.get_rank(number, index, least=0)
        return Decision(Action.PAUSE, f"{name}: {place}")
