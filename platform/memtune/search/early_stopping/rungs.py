"""Rungs: numbers of tokens at which the trials of a study are compared.

An alternative of slow starters is behind at every early rung, whatever its trials reach at full length. The
best trials of each alternative therefore pass the rungs until trials at full length show that another one is
better: until the interval of its best value is above the other's best value.

The interval is for the lower end of an alternative's distribution of values, from its best values
x1 <= ... <= xk:

    [x1 - ((1 - confidence)^(-1/(k - 1)) - 1) (xk - x1), x1]

Robson and Whitlock (1964), "Estimation of a Truncation Point", have k = 2; more values make it narrower under
the same assumption, that the density is positive and even near its lower end.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import Field

from memtune.search.early_stopping.rule import EarlyStopping
from memtune.search.trial_store import StoredTrial

CONFIDENCE = 0.95
MIN_VALUES = 3
MAX_VALUES = 4
"""The best values of an alternative that its interval uses; the density is less even at further ones."""


def compute_lower_bound(values: Sequence[float]) -> float:
    """The lower bound of an alternative's best value from its best values, best first; lower is better.

    Minus infinity for fewer than three values.
    """
    best = values[:MAX_VALUES]
    if len(best) < MIN_VALUES or not math.isfinite(best[-1]):
        return -math.inf
    factor = math.pow(1 - CONFIDENCE, -1 / (len(best) - 1)) - 1
    return best[0] - factor * (best[-1] - best[0])


def is_leading(alternative: str, best_values: Mapping[str, Sequence[float]]) -> bool:
    """Whether no other alternative is better, by the best values of each at full length."""
    bound = compute_lower_bound(best_values.get(alternative, ()))
    return all(other == alternative or values[0] >= bound for other, values in best_values.items())


PROTECTED_TRIALS = 2
"""Trials of each alternative that may pass a rung by rank within it: seed noise may decide which is best."""


class RungConfig(EarlyStopping):
    """First rung after `grace` tokens, each next one `factor` times as far.

    A trial passes a rung if it is among the best 1/factor of the trials that have reached it and among the
    best `max_survivors` of them. With `per_family` it also passes if it is among the best two, and the best
    1/factor, of its alternative (its family, unless the study compares a field), as long as no other one is
    better at full length.
    """

    title: ClassVar[str]
    """The rule's name in tables."""

    grace: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "predicted tokens, or examples"})
    """Predicted tokens of the first rung; default: a quarter of a trial's."""
    factor: int = Field(default=3, ge=2)
    """Factor between two rungs, and the reciprocal of the share of trials that continue."""
    max_survivors: int | None = Field(default=4, ge=1, json_schema_extra={"unit": "trials"})
    """Number of trials that continue at a rung, at most."""
    per_family: bool = True
    """Whether the best 1/factor of an alternative, two trials at most, pass too until another is better."""

    @property
    def first_rung(self) -> int:
        """Tokens of the first rung; without `grace`, every first report reaches it."""
        return self.grace or 1

    def fill_defaults(self, first_report: int, trial_tokens: int) -> Self:
        """The settings with a first rung where the study names none."""
        if self.grace:
            return self
        return self.model_copy(update={"grace": max(first_report, math.ceil(trial_tokens / 4))})

    def describe(self) -> str:
        """The rule's name with its first rung."""
        return f"{self.title} after {self.grace:,}" if self.grace else self.title

    def get_problem(self, trial_tokens: int) -> str | None:
        """Why no trial would reach a rung, or None."""
        if self.grace is None or self.grace < trial_tokens:
            return None
        return (
            f"early stopping would stop no trial, because early_stopping.grace = {self.grace:,} and a trial "
            f"has {trial_tokens:,} tokens; lower grace or leave [early_stopping] out"
        )


@dataclass(frozen=True)
class RungRank:
    """The place of a trial at the rung of `tokens` among `count` trials, of which `survivors` continue."""

    tokens: int
    rank: int
    count: int
    survivors: int
    alternative: str | None
    """The alternative of the trials; None: all trials of the rung."""

    @property
    def passes(self) -> bool:
        """Whether the trial is among those that continue."""
        return self.rank <= self.survivors

    def __str__(self) -> str:
        """As "rank 5 of 6 (lstm) at the rung of 10,000; the best 3 continue"."""
        within = f" ({self.alternative})" if self.alternative else ""
        continues = {0: "none continues yet", 1: "the best continues"}
        return (
            f"rank {self.rank} of {self.count}{within} at the rung of {self.tokens:,}; "
            f"{continues.get(self.survivors, f'the best {self.survivors} continue')}"
        )


class Rung:
    """The value of each trial at its first report at or past `tokens`, by alternative.

    Trials rank by value, lower first, then by number. NaN ranks as infinity.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.values: dict[int, float] = {}
        self.alternative_by_number: dict[int, str] = {}
        self.rankings: dict[str | None, list[tuple[float, int]]] = {None: []}
        """Values and numbers, best first, of each alternative, and of all trials under None."""

    def add(self, number: int, alternative: str, value: float) -> None:
        """Add the value of a trial that has none yet."""
        self.values[number] = math.inf if math.isnan(value) else value
        self.alternative_by_number[number] = alternative
        for ranking in (self.rankings[None], self.rankings.setdefault(alternative, [])):
            insort(ranking, (self.values[number], number))

    def list_best_values(self) -> dict[str, list[float]]:
        """The best values of each alternative that has reached the rung, best first."""
        return {
            name: [value for value, _ in ranking[:MAX_VALUES]]
            for name, ranking in self.rankings.items()
            if name is not None
        }


class Rungs:
    """The rungs grace, grace * factor, ... below the budget of a trial, at which it is complete."""

    def __init__(self, config: RungConfig, trial_tokens: int) -> None:
        self._config = config
        self._rungs: list[Rung] = []
        self._full_length = Rung(trial_tokens)
        tokens = config.first_rung
        while tokens < trial_tokens:
            self._rungs.append(Rung(tokens))
            tokens *= config.factor

    def __len__(self) -> int:
        return len(self._rungs)

    def __getitem__(self, index: int) -> Rung:
        return self._rungs[index]

    def record(self, number: int, alternative: str, tokens: int, value: float) -> list[int]:
        """Add a report to the rungs that a trial reaches with it for the first time; return their indices."""
        new = [rung for rung in (*self._rungs, self._full_length) if rung.tokens <= tokens]
        reached = [index for index, rung in enumerate(new) if number not in rung.values]
        for index in reached:
            new[index].add(number, alternative, value)
        return [index for index in reached if index < len(self._rungs)]

    def replay(self, outcome: StoredTrial) -> int:
        """Add a recorded curve; return the number of rungs that the trial has reached."""
        number, alternative = outcome.number, outcome.alternative
        return sum(len(self.record(number, alternative, *each)) for each in sorted(outcome.curve.items()))

    def get_rank(self, number: int, index: int, *, can_wait: bool = False) -> RungRank:
        """The place of a trial that has reached a rung; within its alternative if it passes only there.

        Of fewer than `factor` trials all continue, unless trials can wait for more.
        """
        place = self._get_rank_within(number, index, None, can_wait)
        if place.passes or not self._config.per_family:
            return place
        alternative = self._rungs[index].alternative_by_number[number]
        within = self._get_rank_within(number, index, alternative, can_wait)
        is_protected = within.passes and within.rank <= PROTECTED_TRIALS
        if is_protected and is_leading(alternative, self._full_length.list_best_values()):
            return within
        return place

    def _get_rank_within(self, number: int, index: int, alternative: str | None, can_wait: bool) -> RungRank:
        rung = self._rungs[index]
        ranking = rung.rankings[alternative]
        rank, count = 1 + bisect_left(ranking, (rung.values[number], number)), len(ranking)
        return RungRank(rung.tokens, rank, count, self._count_survivors(count, can_wait), alternative)

    def list_survivors(self, index: int, *, is_final: bool) -> list[int]:
        """The trials that pass a rung, best first, where trials can wait for more.

        Once the rung is final, the best two pass, and the best of each alternative that is protected.
        """
        rankings, best_values = self._rungs[index].rankings, self._full_length.list_best_values()
        least_of_all = min(2, self._config.max_survivors or 2) if is_final else 0
        least_of_each = 1 if is_final else 0

        def select(ranking: Sequence[tuple[float, int]], least: int) -> Sequence[tuple[float, int]]:
            return ranking[: max(least, self._count_survivors(len(ranking), can_wait=True))]

        best = select(rankings[None], least_of_all)
        protected = [
            key
            for alternative, ranking in rankings.items()
            if alternative is not None and self._config.per_family and is_leading(alternative, best_values)
            for key in select(ranking, least_of_each)[:PROTECTED_TRIALS]
        ]
        return [number for _, number in [*best, *sorted(protected)]]

    def _count_survivors(self, count: int, can_wait: bool) -> int:
        share = count // self._config.factor if can_wait or count >= self._config.factor else count
        return min(share, self._config.max_survivors or share)
