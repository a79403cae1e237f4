"""Rungs: numbers of tokens at which the trials of a study are compared."""

import math
from bisect import bisect_left, insort

from pydantic import Field

from memtune.search.early_stopping.rule import EarlyStopping
from memtune.search.outcomes import Outcome

__all__ = ["Rung", "RungConfig", "Rungs"]


class RungConfig(EarlyStopping):
    """First rung after `grace` tokens, each next one `factor` times as far.

    A trial passes a rung if it is among the best 1/factor of the trials that have reached it and among the
    best `max_survivors` of them.
    """

    grace: int = Field(ge=1)
    factor: int = Field(default=3, ge=2)
    max_survivors: int = Field(default=4, ge=1)

    def get_problem(self, trial_tokens: int) -> str | None:
        """Why no trial would reach a rung, or None."""
        if self.grace < trial_tokens:
            return None
        return (
            f"early stopping would stop no trial, because early_stopping.grace = {self.grace:,} and a trial "
            f"has {trial_tokens:,} tokens; lower grace or leave [early_stopping] out"
        )


class Rung:
    """The value of each trial at its first report at or past `tokens`.

    Trials rank by value, lower first, then by number. NaN ranks as infinity.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.values: dict[int, float] = {}
        self._ranking: list[tuple[float, int]] = []

    def add(self, number: int, value: float) -> None:
        """Add the value of a trial that has none yet."""
        self.values[number] = math.inf if math.isnan(value) else value
        insort(self._ranking, (self.values[number], number))

    def get_rank(self, number: int) -> int:
        """The rank of a trial of the rung; 1 is the best."""
        return bisect_left(self._ranking, (self.values[number], number)) + 1

    def list_best(self, count: int) -> list[int]:
        """The numbers of the best trials, best first."""
        return [number for _, number in self._ranking[:count]]


class Rungs:
    """The rungs grace, grace * factor, ... below the budget of a trial, at which it is complete."""

    def __init__(self, config: RungConfig, trial_tokens: int) -> None:
        self._config = config
        self._rungs: list[Rung] = []
        tokens = config.grace
        while tokens < trial_tokens:
            self._rungs.append(Rung(tokens))
            tokens *= config.factor

    def __len__(self) -> int:
        return len(self._rungs)

    def __getitem__(self, index: int) -> Rung:
        return self._rungs[index]

    def record(self, number: int, tokens: int, value: float) -> list[int]:
        """Add a report to the rungs that the trial reaches with it; return their indices.

        A trial counts once at each rung, so a repeated report reaches none.
        """
        reached = [
            index
            for index, rung in enumerate(self._rungs)
            if rung.tokens <= tokens and number not in rung.values
        ]
        for index in reached:
            self._rungs[index].add(number, value)
        return reached

    def replay(self, outcome: Outcome) -> int:
        """Add a recorded curve; return the number of rungs that the trial has reached."""
        reports = sorted(outcome.curve.items())
        return sum(len(self.record(outcome.number, tokens, value)) for tokens, value in reports)

    def count_best(self, index: int) -> int:
        """How many trials are the best 1/factor of a rung and within its cap."""
        return min(len(self._rungs[index].values) // self._config.factor, self._config.max_survivors)

    def describe(self, number: int, index: int, survivors: int) -> str:
        """The trial's rank at a rung from which `survivors` continue, for readers."""
        rung = self._rungs[index]
        return (
            f"rank {rung.get_rank(number)} of {len(rung.values)} at the rung of {rung.tokens:,}, "
            f"ranks up to {survivors} continue"
        )
