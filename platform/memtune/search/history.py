"""What a study's turns came to, kept in step with its storage, so that no decision reads them all again.

A long study asks and ends thousands of times. All that a decision needs of the past is here, at a cost that
hardly grows with the number of trials; what a sampler learns from is bounded.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable

from optuna.trial import FrozenTrial, TrialState

from memtune.search.records import IDENTITY, is_rejected
from memtune.spaces import Scalar

__all__ = ["Excerpt", "History"]

BEST = 100
"""Four times what TPE models as good, which is 25 trials at most."""
NEWEST = 300
RUNNING = 100

Rank = tuple[int, float, float, int]


class History:
    """The turns of one study: every time its sampler was asked, whatever came of it."""

    def __init__(self, trials: Iterable[FrozenTrial]) -> None:
        """`trials` in the order in which they were asked for."""
        self.turns = 0
        self.fruitless = 0
        """How many of the last turns in a row started no trial."""
        self.numbers: dict[str, int] = {}
        """The started trials' numbers by identity."""
        self.excerpt = Excerpt()
        self._turns_with: Counter[tuple[str, Scalar]] = Counter()
        self._started_with: Counter[tuple[str, Scalar]] = Counter()
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        """Take in one more turn."""
        choices = [(name, value) for name, value in trial.params.items() if isinstance(value, str)]
        rejected = is_rejected(trial)
        self.turns += 1
        self.fruitless = self.fruitless + 1 if rejected else 0
        self._turns_with.update(choices)
        if IDENTITY in trial.user_attrs and not rejected:
            self.numbers[trial.user_attrs[IDENTITY]] = trial.number
            self._started_with.update(choices)
        self.excerpt.add(trial)

    def tried(self, name: str, option: Scalar) -> tuple[int, int]:
        """How many turns took an option of a choice, and how many of them started a trial."""
        return self._turns_with[name, option], self._started_with[name, option]


class Excerpt:
    """The trials that a sampler learns from: all of a short study, a bounded part of a long one.

    Of those that ended, the best and the newest, of those that run the newest. TPE models at most 25 trials
    as good, which are among the best here as they are among all; what it models as bad, thousands of them,
    is a sample. The part follows from the trials alone, not from the order in which they ended: a study that
    was closed and opened again has the same one.
    """

    def __init__(self) -> None:
        self._trials: dict[int, FrozenTrial] = {}
        self._ranks: list[Rank] = []
        self._newest: list[int] = []
        self._running: list[int] = []

    def add(self, trial: FrozenTrial) -> None:
        """Take in a trial, or its end."""
        self._discard_running(trial.number)
        if trial.state is TrialState.RUNNING:
            self._trials[trial.number] = trial
            insort(self._running, trial.number)
        elif trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            self._trials[trial.number] = trial
            insort(self._ranks, _rank(trial))
            insort(self._newest, trial.number)
            self._drop_surplus()

    def trials(self) -> list[FrozenTrial]:
        """The part, by number."""
        numbers = {rank[-1] for rank in self._ranks}.union(self._newest, self._running[-RUNNING:])
        return [self._trials[number] for number in sorted(numbers)]

    def _discard_running(self, number: int) -> None:
        place = bisect_left(self._running, number)
        if place < len(self._running) and self._running[place] == number:
            del self._running[place]
            del self._trials[number]

    def _drop_surplus(self) -> None:
        dropped = {rank[-1] for rank in self._ranks[BEST:]}.union(self._newest[:-NEWEST])
        del self._ranks[BEST:], self._newest[:-NEWEST]
        if dropped:
            dropped.difference_update((rank[-1] for rank in self._ranks), self._newest)
        for number in dropped:
            del self._trials[number]


def _rank(trial: FrozenTrial) -> Rank:
    """TPE's order, the best first: completed by value, stopped by how far and how good, refused."""
    if sum(violation for violation in trial.constraints.values() if violation > 0):
        return (2, 0.0, 0.0, trial.number)
    if trial.state is TrialState.COMPLETE:
        return (0, 0.0, trial.value if trial.value is not None else math.inf, trial.number)
    if trial.last_step is None:
        return (1, 1.0, 0.0, trial.number)
    value = trial.intermediate_values[trial.last_step]
    return (1, -float(trial.last_step), math.inf if math.isnan(value) else value, trial.number)
