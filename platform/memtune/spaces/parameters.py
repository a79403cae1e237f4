"""The leaves of a space: constants and parameters of a single field of a configuration."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from memtune.errors import SpaceError
from memtune.spaces.choosers import Chooser, Scalar

MAX_FITTED_VALUE = 2**24
"""Largest power of two that `FittedSize.solve` tries."""
SizeKind = Literal["parameters", "multiply_adds", "state"]
"""A size of a model that grows with its width."""
SIZE_NOUNS: Mapping[SizeKind, str] = {
    "parameters": "parameters",
    "multiply_adds": "multiply-adds per token",
    "state": "numbers of state",
}
FIT_PREFIX = "fit_"
Confidence = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Prior:
    """A value that is believed to be good before the first trial, and how firmly."""

    value: Scalar
    confidence: Confidence = "medium"


def _describe_prior(prior: Prior | None) -> dict[str, Any]:
    return {} if prior is None else {"prior": prior.value, "confidence": prior.confidence}


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
    prior: Prior | None = None

    def sample(self, chooser: Chooser, name: str) -> int:
        """An integer of the range."""
        return chooser.suggest_int(name, self.low, self.high, step=self.step, log=self.log)

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        written = {"int": [self.low, self.high], "step": self.step, "log": self.log}
        return written | _describe_prior(self.prior)

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
    prior: Prior | None = None

    def sample(self, chooser: Chooser, name: str) -> float:
        """A number of the range; numbers of a grid are rounded, so equal points have equal identities."""
        value = chooser.suggest_float(name, self.low, self.high, step=self.step, log=self.log)
        if self.step is None:
            return value
        return self._compute_grid_value(round((value - self.low) / self.step))

    def describe(self) -> dict[str, Any]:
        """As in a space file; without a step, step is None."""
        written = {"float": [self.low, self.high], "step": self.step, "log": self.log}
        return written | _describe_prior(self.prior)

    def size(self) -> int | None:
        """Number of grid points; None without a step."""
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def values(self) -> Iterator[Scalar]:
        """Every number of the grid, in ascending order."""
        return (self._compute_grid_value(index) for index in range(self.size() or 0))

    def test_values(self) -> tuple[Scalar, ...]:
        """Both ends, then a number between them."""
        if self.step is not None:
            return (self.low, self.high, self._compute_grid_value((self.size() or 0) // 2))
        between = math.sqrt(self.low) * math.sqrt(self.high) if self.log else (self.low + self.high) / 2
        return (self.low, self.high, between)

    def _compute_grid_value(self, index: int) -> float:
        assert self.step is not None
        return float(f"{self.low + index * self.step:.12g}")


@dataclass(frozen=True, slots=True)
class Categorical:
    """A choice among scalars without an order."""

    choices: tuple[Scalar, ...]
    prior: Prior | None = None

    def sample(self, chooser: Chooser, name: str) -> Scalar:
        """One of the choices."""
        return chooser.suggest_categorical(name, self.choices)

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        return {"choice": list(self.choices)} | _describe_prior(self.prior)

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
class FittedSize:
    """A positive integer, such as a width, whose model has about `target` of a size."""

    size_kind: SizeKind
    target: int
    place: str = field(default="", compare=False)
    """The file and the line that set it: those of a study that overrides its space's value."""

    @property
    def name(self) -> str:
        """As in a space file: "fit_parameters"."""
        return f"{FIT_PREFIX}{self.size_kind}"

    def sample(self, chooser: Chooser, name: str) -> "FittedSize":
        """Itself; the space solves it after all other fields are chosen."""
        return self

    def describe(self) -> dict[str, Any]:
        """As in a space file."""
        return {self.name: self.target}

    def size(self) -> int | None:
        """1: the other fields determine it."""
        return 1

    def values(self) -> Iterator[Scalar]:
        """Empty: it is solved, not chosen."""
        return iter(())

    def test_values(self) -> tuple[Scalar, ...]:
        """Empty: it is solved, not chosen."""
        return ()

    def solve(self, measure: Callable[[int], int]) -> int:
        """The positive integer whose size is nearest to the target; of two equally near, the smaller.

        `measure` must increase with its argument; bisection calls it about 2 log2(result) times. Raises
        SpaceError for a target below the size of 1 or above that of 2^24, and where the size is constant.
        """
        least, high = measure(1), 1
        if least > self.target:
            raise self._make_error(f"1 gives {least} already", least, measure)
        while measure(high) < self.target:
            if high >= MAX_FITTED_VALUE:
                raise self._make_error(f"{high} gives {measure(high)}", least, measure)
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if measure(middle) < self.target else (low, middle)
        if low and self.target - measure(low) <= measure(high) - self.target:
            return low
        return high

    def _make_error(self, reason: str, least: int, measure: Callable[[int], int]) -> SpaceError:
        noun = SIZE_NOUNS[self.size_kind]
        if measure(MAX_FITTED_VALUE) == least:
            reason = f"the model has {least} {noun}, whatever this field is"
        return SpaceError(f"{self.name} = {self.target} ({noun}) is out of reach: {reason}")


Leaf = Constant | Integer | Real | Categorical | FittedSize
