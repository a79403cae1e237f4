"""Rungs: numbers of tokens at which the trials of a study are compared."""

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from typing import Self

from pydantic import Field

from memtune.search.early_stopping.family_groups import MAX_VALUES, count_leading, list_compared
from memtune.search.early_stopping.rule import EarlyStopping
from memtune.search.outcomes import Outcome

__all__ = ["Rung", "RungConfig", "Rungs"]

MIN_FAMILY_SURVIVORS = 2
"""Least number of trials of each family that pass a rung: seed noise may decide which one is best."""


class RungConfig(EarlyStopping):
    """First rung after `grace` tokens (default: at the first report), each next one `factor` times as far.

    A trial passes a rung if it is among the best 1/factor of the trials that have reached it and among the
    best `max_survivors` of them. With `per_family` it is compared with the trials of its own family and of
    families that are better at full length, and the families share `max_survivors`.
    """

    grace: int | None = Field(default=None, ge=1)
    """Predicted tokens of the first rung; None: those of the first report."""
    factor: int = Field(default=3, ge=2)
    """Factor between two rungs, and the reciprocal of the share of trials that continue."""
    max_survivors: int = Field(default=4, ge=1)
    """Number of trials that continue at a rung, at most."""
    per_family: bool = True
    """Whether a trial is compared with trials of its own family and of better families only."""

    @property
    def first_rung(self) -> int:
        """Tokens of the first rung; without `grace`, every first report reaches it."""
        return self.grace or 1

    def fill_defaults(self, first_report: int) -> Self:
        """The settings with a rung at the first report where the study names none."""
        return self if self.grace else self.model_copy(update={"grace": first_report})

    def describe_start(self, name: str) -> str:
        """A rule's name with its first rung."""
        return f"{name} after {self.grace:,}" if self.grace else f"{name} from the first report"

    def get_problem(self, trial_tokens: int) -> str | None:
        """Why no trial would reach a rung, or None."""
        if self.grace is None or self.grace < trial_tokens:
            return None
        return (
            f"early stopping would stop no trial, because early_stopping.grace = {self.grace:,} and a trial "
            f"has {trial_tokens:,} tokens; lower grace or leave [early_stopping] out"
        )


class Rung:
    """The value of each trial at its first report at or past `tokens`, by family.

    Trials rank by value, lower first, then by number. NaN ranks as infinity.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.values: dict[int, float] = {}
        self.family_by_number: dict[int, str] = {}
        self._rankings: dict[str, list[tuple[float, int]]] = {}

    def add(self, number: int, family: str, value: float) -> None:
        """Add the value of a trial that has none yet."""
        self.values[number] = math.inf if math.isnan(value) else value
        self.family_by_number[number] = family
        insort(self._rankings.setdefault(family, []), (self.values[number], number))

    def count(self, families: Collection[str]) -> int:
        """The number of trials of these families."""
        return sum(len(self._rankings.get(family, ())) for family in families)

    def get_rank(self, number: int, families: Collection[str]) -> int:
        """The rank of a trial among those of these families; 1 is the best."""
        key = (self.values[number], number)
        return 1 + sum(bisect_left(self._rankings.get(family, []), key) for family in families)

    def iterate_best(self, count: int) -> Iterator[int]:
        """The numbers of the best `count` trials of each family, the best of all first."""
        best = sorted(key for ranking in self._rankings.values() for key in ranking[:count])
        return (number for _, number in best)

    def list_best_values(self, count: int) -> dict[str, list[float]]:
        """The best values of each family that has reached the rung, best first."""
        return {family: [value for value, _ in ranking[:count]] for family, ranking in self._rankings.items()}


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

    def record(self, number: int, family: str, tokens: int, value: float) -> list[int]:
        """Add a report to the rungs that the trial reaches with it; return their indices.

        A trial counts once at each rung, so a repeated report reaches none.
        """
        family = family if self._config.per_family else ""
        new = [rung for rung in (*self._rungs, self._full_length) if rung.tokens <= tokens]
        reached = [index for index, rung in enumerate(new) if number not in rung.values]
        for index in reached:
            new[index].add(number, family, value)
        return [index for index in reached if index < len(self._rungs)]

    def replay(self, outcome: Outcome) -> int:
        """Add a recorded curve; return the number of rungs that the trial has reached."""
        reports = sorted(outcome.curve.items())
        return sum(
            len(self.record(outcome.number, outcome.family, tokens, value)) for tokens, value in reports
        )

    def count_best(self, number: int, index: int) -> int:
        """How many of the trials that a trial is compared with at a rung are the best 1/factor in its cap."""
        count = self._rungs[index].count(self._list_compared(number, index))
        return min(count // self._config.factor, self._count_cap(index))

    def count_first(self, number: int, index: int) -> int:
        """As `count_best`, and all within the cap while there are fewer than `factor` trials."""
        count = self._rungs[index].count(self._list_compared(number, index))
        share = count if count < self._config.factor else count // self._config.factor
        return min(share, self._count_cap(index))

    def get_rank(self, number: int, index: int) -> int:
        """The trial's rank at a rung among those that it is compared with."""
        return self._rungs[index].get_rank(number, self._list_compared(number, index))

    def describe(self, number: int, index: int, survivors: int) -> str:
        """The trial's rank at a rung from which `survivors` continue, for readers."""
        families = self._list_compared(number, index)
        rung = self._rungs[index]
        among = f"of {rung.count(families)}" + (f" ({', '.join(sorted(families))})" if any(families) else "")
        return (
            f"rank {self.get_rank(number, index)} {among} at the rung of {rung.tokens:,}, "
            f"ranks up to {survivors} continue"
        )

    def _list_compared(self, number: int, index: int) -> Collection[str]:
        family = self._rungs[index].family_by_number[number]
        return list_compared(family, self._full_length.list_best_values(MAX_VALUES))

    def _count_cap(self, index: int) -> int:
        """A family's share of the cap."""
        families = self._rungs[index].list_best_values(1)
        leading = count_leading(families, self._full_length.list_best_values(MAX_VALUES))
        cap = self._config.max_survivors
        return max(min(cap, MIN_FAMILY_SURVIVORS), cap // max(leading, 1))
