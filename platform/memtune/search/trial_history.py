"""What is known of the trials that were asked of a study's sampler, while the study runs.

A long study has thousands of trials, and a proposal does not read them all again: a summary of them is in
memory, and a sampler learns from a bounded part of them.
"""

import math
from bisect import insort
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from memtune.search import trial_store
from memtune.spaces import Scalar

MAX_BEST_TRIALS = 100
"""Four times the trials that TPE models as good, which are 25 at most."""
MAX_NEWEST_TRIALS = 300
MAX_RUNNING_TRIALS = 100

Rank = tuple[int, float, float, int]


class History:
    """Every trial that was asked of a study's sampler: started, refused or a duplicate."""

    def __init__(
        self,
        trials: Iterable[FrozenTrial],
        alternatives: Sequence[Mapping[str, Scalar]] = (),
    ) -> None:
        """`trials` are in the order of their numbers; `alternatives` are as in `Candidates`."""
        self.asks = 0
        self.given: set[int] = set()
        """The asks whose configurations a program has chosen."""
        self.refused: set[int] = set()
        self.consecutive_rejections = 0
        """Refusals and duplicates since the last started trial."""
        self.number_by_identity: dict[str, int] = {}
        """The started trials' numbers by identity."""
        self.window = TrialWindow()
        self._starts: list[tuple[int, int]] = []
        """The ask and the place of the alternative of each started trial."""
        self.rejections = [0] * len(alternatives)
        self._alternatives = alternatives
        self._ask_by_number: dict[int, int] = {}
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        """Add the next trial that was asked of the sampler."""
        rejected = trial_store.is_rejected(trial)
        self._ask_by_number[trial.number] = self.asks
        if trial.user_attrs.get(trial_store.ORIGIN_KEY) == trial_store.GIVEN:
            self.given.add(self.asks)
        if trial_store.REFUSAL_KEY in trial.user_attrs:
            self.refused.add(self.asks)
        self.asks += 1
        self.consecutive_rejections = self.consecutive_rejections + 1 if rejected else 0
        if trial_store.IDENTITY_KEY in trial.user_attrs and not rejected:
            self.number_by_identity[trial.user_attrs[trial_store.IDENTITY_KEY]] = trial.number
        for place, choice in enumerate(self._alternatives):
            if choice.items() <= trial.params.items():
                self.rejections[place] += rejected
                self._starts += [] if rejected else [(self.asks - 1, place)]
        self.window.add(trial)

    def count_starts(self, led: Container[int] = (), *, is_led: bool = False) -> list[int]:
        """The started trials of each alternative at the asks that a prior has `led`, or at the others."""
        counts = Counter(place for ask, place in self._starts if (ask in led) == is_led)
        return [counts[place] for place in range(len(self._alternatives))]

    def list_learnt(self) -> dict[int, FrozenTrial]:
        """The trials that a sampler learns from, by the number of their ask."""
        return {self._ask_by_number[trial.number]: trial for trial in self.window.list_trials()}


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
        trial = trial_store.present_to_sampler(trial)
        if (known := self._trials.pop(trial.number, None)) is not None:
            for numbers in (self._running, self._newest):
                if trial.number in numbers:
                    numbers.remove(trial.number)
            if (rank := _rank(known)) in self._ranks:
                self._ranks.remove(rank)
        if trial.state is OptunaState.RUNNING:
            self._trials[trial.number] = trial
            insort(self._running, trial.number)
        elif trial.state in (OptunaState.COMPLETE, OptunaState.PRUNED):
            self._trials[trial.number] = trial
            insort(self._ranks, _rank(trial))
            insort(self._newest, trial.number)
            del self._ranks[MAX_BEST_TRIALS:], self._newest[:-MAX_NEWEST_TRIALS]
            kept = {rank[-1] for rank in self._ranks}.union(self._newest, self._running)
            for number in self._trials.keys() - kept:
                del self._trials[number]

    def list_trials(self) -> list[FrozenTrial]:
        """The trials of the part, by number."""
        numbers = {rank[-1] for rank in self._ranks}.union(self._newest, self._running[-MAX_RUNNING_TRIALS:])
        return [self._trials[number] for number in sorted(numbers)]


def _rank(trial: FrozenTrial) -> Rank:
    """TPE's order, the best first: complete by value, stopped by tokens and value, then refused."""
    if sum(violation for violation in trial.constraints.values() if violation > 0):
        return (2, 0.0, 0.0, trial.number)
    if trial.state is OptunaState.COMPLETE:
        return (0, 0.0, trial.value if trial.value is not None else math.inf, trial.number)
    if trial.last_step is None:
        return (1, 1.0, 0.0, trial.number)
    value = trial.intermediate_values[trial.last_step]
    return (1, -float(trial.last_step), math.inf if math.isnan(value) else value, trial.number)
