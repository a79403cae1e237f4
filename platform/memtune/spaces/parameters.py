"""The leaves of a space: constants and parameters of a single field of a configuration."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from memtune.errors import SpaceError
from memtune.spaces.choosers import Chooser, Scalar

__all__ = ["Categorical", "Constant", "FittedParameters", "Integer", "Leaf", "Real"]

MAX_FITTED_VALUE = 2**24
"""Largest power of two that `FittedParameters.solve` tries."""


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
        """1."""
        return 1

    def values(self) -> Iterator[Scalar]:
        """Empty: a constant is not a parameter."""
        return iter(())

    def test_values(self) -> tuple[Scalar, ...]:
        """Empty: a constant is part of every sample."""
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
        """Number of integers in the range."""
        return (self.high - self.low) // self.step + 1

    def values(self) -> Iterator[Scalar]:
        """Every integer, in ascending order."""
        return iter(range(self.low, self.high + 1, self.step))

    def test_values(self) -> tuple[Scalar, ...]:
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
        """A number of the range; numbers of a grid are rounded, so equal points have equal identities."""
        value = chooser.suggest_float(name, self.low, self.high, step=self.step, log=self.log)
        if self.step is None:
            return value
        return self._grid_value(round((value - self.low) / self.step))

    def describe(self) -> dict[str, Any]:
        """As in a space file; without a step, step is None."""
        return {"float": [self.low, self.high], "step": self.step, "log": self.log}

    def size(self) -> int | None:
        """Number of grid points; None without a step."""
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def values(self) -> Iterator[Scalar]:
        """Every number of the grid, in ascending order."""
        return (self._grid_value(index) for index in range(self.size() or 0))

    def test_values(self) -> tuple[Scalar, ...]:
        """Both ends, then a number between them."""
        if self.step is not None:
            return (self.low, self.high, self._grid_value((self.size() or 0) // 2))
        between = math.sqrt(self.low) * math.sqrt(self.high) if self.log else (self.low + self.high) / 2
        return (self.low, self.high, between)

    def _grid_value(self, index: int) -> float:
        assert self.step is not None
        return float(f"{self.low + index * self.step:.12g}")


@dataclass(frozen=True, slots=True)
class Categorical:
    """A choice among scalars without an order."""

    choices: tuple[Scalar, ...]

    def sample(self, chooser: Chooser, name: str) -> Scalar:
        """One of the choices."""
        return chooser.suggest_categorical(name, self.choices)

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        return {"choice": list(self.choices)}

    def size(self) -> int | None:
        """Number of choices."""
        return len(self.choices)

    def values(self) -> Iterator[Scalar]:
        """Every choice, as written."""
        return iter(self.choices)

    def test_values(self) -> tuple[Scalar, ...]:
        """Every choice."""
        return self.choices


@dataclass(frozen=True, slots=True)
class FittedParameters:
    """A positive integer, such as a width, whose model has about `target` parameters."""

    target: int

    def sample(self, chooser: Chooser, name: str) -> "FittedParameters":
        """Itself; the space solves it after all other fields are chosen."""
        return self

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        return {"fit_parameters": self.target}

    def size(self) -> int | None:
        """1: the other fields determine it."""
        return 1

    def values(self) -> Iterator[Scalar]:
        """Empty: it is solved, not chosen."""
        return iter(())

    def test_values(self) -> tuple[Scalar, ...]:
        """Empty: it is solved, not chosen."""
        return ()

    def solve(self, count_parameters: Callable[[int], int]) -> int:
        """The positive integer whose count is nearest to the target; of two equally near, the smaller.

        `count_parameters` must increase with its argument; bisection calls it about 2 log2(result) times.
        Raises SpaceError for a target below the count of 1 or above the count of 2^24.
        """
        if (least := count_parameters(1)) > self.target:
            raise SpaceError(
                f"fit_parameters = {self.target} is out of reach: 1 gives {least} parameters already"
            )
        high = 1
        while count_parameters(high) < self.target:
            if high >= MAX_FITTED_VALUE:
                raise SpaceError(
                    f"fit_parameters = {self.target} is out of reach: {high} gives {count_parameters(high)}"
                )
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if count_parameters(middle) < self.target else (low, middle)
        if low and self.target - count_parameters(low) <= count_parameters(high) - self.target:
            return low
        return high


Leaf = Constant | Integer | Real | Categorical | FittedParameters
