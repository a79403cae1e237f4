"""Rungs: numbers of tokens at which the trials of a study are compared."""

import math
from bisect import bisect_left, insort

__all__ = ["Rung", "list_rung_tokens"]


def list_rung_tokens(grace: int, factor: int, trial_tokens: int) -> tuple[int, ...]:
    """The rungs grace, grace * factor, ... below the budget of a trial, at which it is complete."""
    rungs = []
    tokens = grace
    while tokens < trial_tokens:
        rungs.append(tokens)
        tokens *= factor
    return tuple(rungs)


class Rung:
    """The value of each trial at its first report at or past `tokens`.

    Trials rank by value, lower first, then by number. NaN ranks as infinity.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._values: dict[int, float] = {}
        self._ranking: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, number: int) -> bool:
        return number in self._values

    @property
    def values(self) -> dict[int, float]:
        """The values by trial number."""
        return dict(self._values)

    def add(self, number: int, value: float) -> None:
        """Add the value of a trial that has none yet."""
        self._values[number] = math.inf if math.isnan(value) else value
        insort(self._ranking, (self._values[number], number))

    def get_rank(self, number: int) -> int:
        """The rank of a trial of the rung; 1 is the best."""
        return bisect_left(self._ranking, (self._values[number], number)) + 1
