"""The tree of a space.

Its leaves are constants and parameters of a single field of a configuration. A group holds named nodes, and a
branch chooses one of several groups.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, TypeAlias

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
FLOOR_HINTS: Mapping[SizeKind, str] = {
    "state": "; every word of a window counts (by default 256 in attention), so set a smaller window"
}
"""What may be large at a width of 1."""
FIT_PREFIX = "fit_"
MAX_ALTERNATIVES = 10
"""Numbers of a range that are alternatives of a study's question when it compares their field."""
Confidence = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Prior:
    """A value that is believed to be good before the first trial, and how firmly.

    It changes the order in which a space is searched, so that no description of a space has it.
    """

    value: Scalar
    confidence: Confidence = "medium"
    place: str = field(default="", compare=False)
    """The file and the line that state it."""


class _Unchosen:
    """A leaf with one value, which no study chooses."""

    __slots__ = ()

    def size(self) -> int | None:
        """1."""
        return 1

    def values(self) -> Iterator[Scalar]:
        """Empty: nothing is chosen."""
        return iter(())

    def test_values(self) -> tuple[Scalar, ...]:
        """Empty: it is part of every sample."""
        return ()


@dataclass(frozen=True, slots=True)
class Constant(_Unchosen):
    """A value that every configuration of the space shares."""

    value: Any

    def sample(self, chooser: Chooser, name: str) -> Any:
        """The value."""
        return self.value

    def describe(self) -> Any:
        """The value as written."""
        return self.value


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
    prior: Prior | None = None

    def sample(self, chooser: Chooser, name: str) -> float:
        """A number of the range; numbers of a grid are rounded, so equal points have equal identities."""
        value = chooser.suggest_float(name, self.low, self.high, step=self.step, log=self.log)
        if self.step is None:
            return value
        return self._compute_grid_value(round((value - self.low) / self.step))

    def describe(self) -> dict[str, Any]:
        """As in a space file; without a step, step is None."""
        return {"float": [self.low, self.high], "step": self.step, "log": self.log}

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
class FittedSize(_Unchosen):
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

    def solve(self, measure: Callable[[int], int]) -> int:
        """The positive integer whose size is nearest to the target; of two equally near, the smaller.

        `measure` must increase with its argument; bisection calls it about 2 log2(result) times. Raises
        SpaceError for a target below the size of 1 or above that of 2^24, and where the size is constant.
        """
        least, high = measure(1), 1
        if least > self.target:
            hint = FLOOR_HINTS.get(self.size_kind, "")
            raise self._make_error(f"with 1 it is {least:,} already{hint}", least, measure)
        while measure(high) < self.target:
            if high >= MAX_FITTED_VALUE:
                raise self._make_error(f"with {high:,} it is {measure(high):,}", least, measure)
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
        if measure(1_024) == least:  # not the maximum: sizes of so many layers take minutes
            reason = f"the model has {least:,} {noun}, whatever this field is"
        return SpaceError(f"{self.name} = {self.target:,} ({noun}) is out of reach: {reason}")


Leaf = Constant | Integer | Real | Categorical | FittedSize
Node: TypeAlias = "Leaf | Group | Branch"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A leaf of a space with its name, its field and its conditions.

    `name` is its name in a study, options of branches included. `field` is its dotted path in the
    configuration. `conditions` are the choices of branches, by name, under which it is sampled.
    """

    name: str
    field: str
    leaf: Leaf
    conditions: Mapping[str, str]

    def list_alternatives(self) -> list[Scalar]:
        """Its values, where a study can try each of them; empty for a range of more than MAX_ALTERNATIVES."""
        size = self.leaf.size()
        is_few = isinstance(self.leaf, Categorical) or (size is not None and size <= MAX_ALTERNATIVES)
        return [*self.leaf.values()] if is_few else []


@dataclass(frozen=True, slots=True)
class Group:
    """A table: every member is sampled."""

    members: "Mapping[str, Node]"

    def sample(self, chooser: Chooser, name: str) -> dict[str, Any]:
        """A value for every member."""
        return {key: node.sample(chooser, join_name(name, key)) for key, node in self.members.items()}

    def describe(self) -> dict[str, Any]:
        """As in a space file, every default filled in."""
        return {key: node.describe() for key, node in self.members.items()}

    def size(self) -> int | None:
        """The product of the members' sizes."""
        return _combine_sizes([node.size() for node in self.members.values()], math.prod)

    def parameters(self, name: str, place: str, conditions: Mapping[str, str]) -> Iterator[Parameter]:
        """The parameters of every member, in the order of the file."""
        for key, node in self.members.items():
            own, field = join_name(name, key), join_name(place, key)
            if isinstance(node, Group | Branch):
                yield from node.parameters(own, field, conditions)
            elif isinstance(node, FittedSize) or node.test_values():
                yield Parameter(own, field, node, conditions)

    def points(self, name: str) -> Iterator[dict[str, Scalar]]:
        """Every combination of the members' values, by parameter name; the last member varies fastest."""
        members = (_list_points(node, join_name(name, key)) for key, node in self.members.items())
        for points in product(*members):
            yield {parameter: value for point in points for parameter, value in point.items()}


@dataclass(frozen=True, slots=True)
class Branch:
    """A choice between groups: the option's name is written under `key`, and only its group is sampled.

    `is_key_written` is False if the groups hold the key themselves (families combined in one space).
    """

    key: str
    options: Mapping[str, Group]
    is_key_written: bool = True
    field: str = ""
    """Where the groups hold the choice, if the key is not its place in the configuration."""
    prior: Prior | None = None

    def sample(self, chooser: Chooser, name: str) -> dict[str, Any]:
        """The chosen option's group."""
        chosen = chooser.suggest_categorical(join_name(name, self.key), tuple(self.options))
        assert isinstance(chosen, str)
        inner = self.options[chosen].sample(chooser, join_name(name, chosen))
        return {self.key: chosen, **inner} if self.is_key_written else inner

    def describe(self) -> dict[str, Any]:
        """As in a space file, every default filled in."""
        return {"one_of": self.key, **{option: group.describe() for option, group in self.options.items()}}

    def size(self) -> int | None:
        """The sum of the options' sizes."""
        return _combine_sizes([group.size() for group in self.options.values()], sum)

    def parameters(self, name: str, place: str, conditions: Mapping[str, str]) -> Iterator[Parameter]:
        """The choice itself, then every option's parameters."""
        choice = join_name(name, self.key)
        leaf = Categorical(tuple(self.options), self.prior)
        yield Parameter(choice, self.field or join_name(place, self.key), leaf, conditions)
        for option, group in self.options.items():
            yield from group.parameters(join_name(name, option), place, {**conditions, choice: option})

    def points(self, name: str) -> Iterator[dict[str, Scalar]]:
        """Every option with every point of its group."""
        for option, group in self.options.items():
            for point in group.points(join_name(name, option)):
                yield {join_name(name, self.key): option, **point}


def join_name(name: str, key: str) -> str:
    """The dotted name of a member.

    >>> join_name("model", "layers"), join_name("", "model")
    ('model.layers', 'model')
    """
    return f"{name}.{key}" if name else key


def count_fitted(node: Node) -> int:
    """Largest number of fitted integers in one configuration of the node."""
    if isinstance(node, Group):
        return sum(count_fitted(member) for member in node.members.values())
    if isinstance(node, Branch):
        return max((count_fitted(group) for group in node.options.values()), default=0)
    return int(isinstance(node, FittedSize))


def _list_points(node: Node, name: str) -> Iterable[dict[str, Scalar]]:
    if isinstance(node, Group | Branch):
        return node.points(name)
    return [{name: value} for value in node.values()] or [{}]


def _combine_sizes(sizes: list[int | None], reduce: Any) -> int | None:
    finite = [size for size in sizes if size is not None]
    return int(reduce(finite)) if len(finite) == len(sizes) else None
