"""The leaves of a space: what a single field of a configuration may hold."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from memtune.errors import SpaceError
from memtune.spaces.choosing import Chooser, Scalar

__all__ = ["Categorical", "Constant", "FittedParameters", "Integer", "Leaf", "Real"]

LARGEST = 2**24


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that every configuration of the space shares."""

    value: Any

    def sample(self, chooser: Chooser, name: str) -> Any:
        """The value."""
        return self.value

    def describe(self) -> Any:
        """The value as written."""
        return self.value

    def size(self) -> int | None:
        """One."""
        return 1

    def values(self) -> Iterator[Scalar]:
        """Nothing: a constant is no parameter."""
        return iter(())

    def probes(self) -> tuple[Scalar, ...]:
        """Nothing: it is part of every sample."""
        return ()


@dataclass(frozen=True, slots=True)
class Integer:
    """low, low + step, ... high; both ends included."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    def sample(self, chooser: Chooser, name: str) -> int:
        """An integer of the range."""
        return chooser.suggest_int(name, self.low, self.high, step=self.step, log=self.log)

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        return {"int": [self.low, self.high], "step": self.step, "log": self.log}

    def size(self) -> int | None:
        """How many integers there are."""
        return (self.high - self.low) // self.step + 1

    def values(self) -> Iterator[Scalar]:
        """Every integer, in rising order."""
        return iter(range(self.low, self.high + 1, self.step))

    def probes(self) -> tuple[Scalar, ...]:
        """Both ends."""
        return (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Real:
    """The numbers from low to high, or with a step only low, low + step, ... high."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def sample(self, chooser: Chooser, name: str) -> float:
        """A number of the range; one of a grid is written the same way whoever chose it."""
        value = chooser.suggest_float(name, self.low, self.high, step=self.step, log=self.log)
        if self.step is None:
            return value
        return self._at(round((value - self.low) / self.step))

    def describe(self) -> dict[str, Any]:
        """As in a space file; without a step, step is None."""
        return {"float": [self.low, self.high], "step": self.step, "log": self.log}

    def size(self) -> int | None:
        """How many numbers there are, None without a step."""
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def values(self) -> Iterator[Scalar]:
        """Every number of the grid, in rising order."""
        return (self._at(index) for index in range(self.size() or 0))

    def probes(self) -> tuple[Scalar, ...]:
        """Both ends, then a number between them."""
        if self.step is not None:
            return (self.low, self.high, self._at((self.size() or 0) // 2))
        between = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return (self.low, self.high, between)

    def _at(self, index: int) -> float:
        assert self.step is not None
        return float(f"{self.low + index * self.step:.12g}")


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of a few scalars, without an order."""

    choices: tuple[Scalar, ...]

    def sample(self, chooser: Chooser, name: str) -> Scalar:
        """One of the choices."""
        return chooser.suggest_categorical(name, self.choices)

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        return {"choice": list(self.choices)}

    def size(self) -> int | None:
        """How many choices there are."""
        return len(self.choices)

    def values(self) -> Iterator[Scalar]:
        """Every choice, as written."""
        return iter(self.choices)

    def probes(self) -> tuple[Scalar, ...]:
        """Every choice."""
        return self.choices


@dataclass(frozen=True, slots=True)
class FittedParameters:
    """A positive integer, such as a width, that brings the number of parameters nearest to `target`."""

    target: int

    def sample(self, chooser: Chooser, name: str) -> "FittedParameters":
        """Itself: the space solves it once every other field is known."""
        return self

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        return {"fit_parameters": self.target}

    def size(self) -> int | None:
        """One: the rest of the configuration determines it."""
        return 1

    def values(self) -> Iterator[Scalar]:
        """Nothing: it is solved, not chosen."""
        return iter(())

    def probes(self) -> tuple[Scalar, ...]:
        """Nothing: it is solved, not chosen."""
        return ()

    def solve(self, count: Callable[[int], int]) -> int:
        """The integer from 1 on whose count comes nearest to the target, the smaller of two as near.

        `count` must rise with its argument; bisection asks it about 2 log2 of the answer times. SpaceError
        when the target lies below the count of 1, or stays out of reach up to 2^24.
        """
        if (least := count(1)) > self.target:
            raise SpaceError(
                f"fit_parameters = {self.target} is out of reach: 1 makes {least} parameters already"
            )
        high = 1
        while count(high) < self.target:
            if high >= LARGEST:
                raise SpaceError(
                    f"fit_parameters = {self.target} is out of reach: {high} makes {count(high)}"
                )
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if count(middle) < self.target else (low, middle)
        if low and self.target - count(low) <= count(high) - self.target:
            return low
        return high


Leaf = Constant | Integer | Real | Categorical | FittedParameters
