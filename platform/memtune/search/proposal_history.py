"""A summary of a study's trials in memory, so that a proposal does not read them all again.

A long study has thousands of trials. The cost of a proposal hardly grows with their number, because a sampler
learns from a bounded part of them.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from memtune.search.optuna_trials import IDENTITY_KEY, is_rejected, present_to_sampler
from memtune.spaces import Scalar

MAX_BEST_TRIALS = 100
"""Four times the trials that TPE models as good, which are 25 at most."""
MAX_NEWEST_TRIALS = 300
MAX_RUNNING_TRIALS = 100

Rank = tuple[int, float, float, int]


class History:
    """Every trial that was asked of a study's sampler: started, refused or a duplicate."""

    def __init__(self, trials: Iterable[FrozenTrial]) -> None:
        """`trials` are in the order of their numbers."""
        self.asks = 0
        self.consecutive_rejections = 0
        """Refusals and duplicates since the last started trial."""
        self.number_by_identity: dict[str, int] = {}
        """The started trials' numbers by identity."""
        self.window = TrialWindow()
        self._asks_by_choice: Counter[tuple[str, Scalar]] = Counter()
        self._starts_by_choice: Counter[tuple[str, Scalar]] = Counter()
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        """Add the next trial that was asked of the sampler."""
        choices = [(name, value) for name, value in trial.params.items() if isinstance(value, str)]
        rejected = is_rejected(trial)
        self.asks += 1
        self.consecutive_rejections = self.consecutive_rejections + 1 if rejected else 0
        self._asks_by_choice.update(choices)
        if IDENTITY_KEY in trial.user_attrs and not rejected:
            self.number_by_identity[trial.user_attrs[IDENTITY_KEY]] = trial.number
            self._starts_by_choice.update(choices)
        self.window.add(trial)

    def count_asks_and_starts(self, name: str, option: Scalar) -> tuple[int, int]:
        """How many trials chose an option of a categorical parameter, and how many of them were started."""
        return self._asks_by_choice[name, option], self._starts_by_choice[name, option]


class TrialWindow:
    """The trials that a sampler learns from: all of a short study, a bounded part of a long one.

    The part has the best and the newest ended or paused trials, and the newest running trials. It has all
    trials that TPE models as good, which are 25 at most, and a sample of those that TPE models as bad. It
    depends on the trials only, not on the order in which they ended, so a resumed study has the same part.
    """

    def __init__(self) -> None:
        self._trials: dict[int, FrozenTrial] = {}
        self._ranks: list[Rank] = []
        self._newest: list[int] = []
        self._running: list[int] = []

    def add(self, trial: FrozenTrial) -> None:
        """Add a trial, or replace a running or paused trial by its later state."""
        trial = present_to_sampler(trial)
        self._discard(trial.number)
        if trial.state is TrialState.RUNNING:
            self._trials[trial.number] = trial
            insort(self._running, trial.number)
        elif trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            self._trials[trial.number] = trial
            insort(self._ranks, _rank(trial))
            insort(self._newest, trial.number)
            self._drop_surplus()

    def list_trials(self) -> list[FrozenTrial]:
        """The trials of the part, by number."""
        numbers = {rank[-1] for rank in self._ranks}.union(self._newest, self._running[-MAX_RUNNING_TRIALS:])
        return [self._trials[number] for number in sorted(numbers)]

    def _discard(self, number: int) -> None:
        known = self._trials.pop(number, None)
        if known is not None:
            _remove(self._running, number)
            _remove(self._newest, number)
            _remove(self._ranks, _rank(known))

    def _drop_surplus(self) -> None:
        dropped = {rank[-1] for rank in self._ranks[MAX_BEST_TRIALS:]}.union(
            self._newest[:-MAX_NEWEST_TRIALS]
        )
        del self._ranks[MAX_BEST_TRIALS:], self._newest[:-MAX_NEWEST_TRIALS]
        if dropped:
            dropped.difference_update((rank[-1] for rank in self._ranks), self._newest)
        for number in dropped:
            del self._trials[number]


def _remove(ordered: list[Any], item: Any) -> None:
    """Remove an item from a sorted list that may hold it."""
    place = bisect_left(ordered, item)
    if place < len(ordered) and ordered[place] == item:
        del ordered[place]


def _rank(trial: FrozenTrial) -> Rank:
    """TPE's order, the best first: complete by value, stopped by tokens and value, then refused."""
    if sum(violation for violation in trial.constraints.values() if violation > 0):
        return (2, 0.0, 0.0, trial.number)
    if trial.state is TrialState.COMPLETE:
        return (0, 0.0, trial.value if trial.value is not None else math.inf, trial.number)
    if trial.last_step is None:
        return (1, 1.0, 0.0, trial.number)
    value = trial.intermediate_values[trial.last_step]
    return (1, -float(trial.last_step), math.inf if math.isnan(value) else value, trial.number)
