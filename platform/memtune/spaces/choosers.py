"""The interface that samples a space, and an implementation that needs no study."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Protocol

Scalar = str | int | float | bool | None


class Chooser(Protocol):
    """Chooses values of named parameters with the methods of Optuna's Trial; ranges include both ends.

    With `log` equal ratios are equally likely; with `step` only low, low + step, ... are possible.
    """

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """An integer from low to high."""

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from low to high."""

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        """One of the choices."""


class RandomChooser:
    """Chooses pinned values, the others uniformly; `parameters` has all chosen so far by name.

    The same seed gives the same choices; several choosers may share one generator.
    """

    def __init__(self, seed: int | random.Random, pinned: Mapping[str, Scalar] | None = None) -> None:
        self._random = seed if isinstance(seed, random.Random) else random.Random(seed)
        self._pinned = pinned or {}
        self.parameters: dict[str, Scalar] = {}

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """An integer from low to high; with `log` an integer stands for the interval of ±0.5 around it."""
        value = self._pinned.get(name)
        if not isinstance(value, int):
            if log:
                drawn = self._random.uniform(math.log(low - 0.5), math.log(high + 0.5))
                value = min(max(round(math.exp(drawn)), low), high)
            else:
                value = self._random.randrange(low, high + 1, step)
        self.parameters[name] = value
        return value

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from low to high."""
        value = self._pinned.get(name)
        if not isinstance(value, float):
            if log:
                drawn = math.exp(self._random.uniform(math.log(low), math.log(high)))
                value = min(max(drawn, low), high)
            elif step is not None:
                value = low + step * self._random.randint(0, round((high - low) / step))
            else:
                value = self._random.uniform(low, high)
        self.parameters[name] = value
        return value

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        """One of the choices."""
        value = self._pinned[name] if name in self._pinned else self._random.choice(choices)
        self.parameters[name] = value
        return value
