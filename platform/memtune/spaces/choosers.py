"""The interface that samples a space, and two implementations that need no study."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
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
    """Chooses uniformly; the same seed gives the same choices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """An integer from low to high; with `log` an integer stands for the interval of ±0.5 around it."""
        if log:
            drawn = self._random.uniform(math.log(low - 0.5), math.log(high + 0.5))
            return min(max(round(math.exp(drawn)), low), high)
        return self._random.randrange(low, high + 1, step)

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """A number from low to high."""
        if log:
            drawn = math.exp(self._random.uniform(math.log(low), math.log(high)))
            return min(max(drawn, low), high)
        if step is not None:
            return low + step * self._random.randint(0, round((high - low) / step))
        return self._random.uniform(low, high)

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        """One of the choices."""
        return self._random.choice(choices)

    def shuffle(self, points: Sequence[T]) -> list[T]:
        """The points in random order."""
        return self._random.sample(points, len(points))


class PinnedChooser:
    """Returns pinned values, else those of another chooser; `parameters` has all chosen so far by name."""

    def __init__(self, pinned: Mapping[str, Scalar], fallback: Chooser) -> None:
        self._pinned = pinned
        self._fallback = fallback
        self.parameters: dict[str, Scalar] = {}

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """The pinned integer, or one from the other chooser."""
        value = self._pinned.get(name)
        if not isinstance(value, int):
            value = self._fallback.suggest_int(name, low, high, step=step, log=log)
        self.parameters[name] = value
        return value

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """The pinned number, or one from the other chooser."""
        value = self._pinned.get(name)
        if not isinstance(value, float):
            value = self._fallback.suggest_float(name, low, high, step=step, log=log)
        self.parameters[name] = value
        return value

    def suggest_categorical(self, name: str, choices: Sequence[Scalar]) -> Scalar:
        """The pinned choice, or one from the other chooser."""
        is_pinned = name in self._pinned
        value = self._pinned[name] if is_pinned else self._fallback.suggest_categorical(name, choices)
        self.parameters[name] = value
        return value
