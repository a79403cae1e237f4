"""The tree of a space: groups of named nodes, and branches that choose one of several groups."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from memtune.spaces.choosers import Chooser, Scalar
from memtune.spaces.parameters import Categorical, FittedSize, Leaf

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
            yield from _iterate_parameters(node, join_name(name, key), join_name(place, key), conditions)

    def points(self, name: str) -> Iterator[dict[str, Scalar]]:
        """Every combination of the members' values, by parameter name; the last member varies fastest."""
        return _iterate_product([(node, join_name(name, key)) for key, node in self.members.items()])


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
        yield Parameter(
            choice, self.field or join_name(place, self.key), Categorical(tuple(self.options)), conditions
        )
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


def _iterate_parameters(
    node: Node, name: str, place: str, conditions: Mapping[str, str]
) -> Iterator[Parameter]:
    if isinstance(node, Group | Branch):
        yield from node.parameters(name, place, conditions)
    elif isinstance(node, FittedSize) or node.test_values():
        yield Parameter(name, place, node, conditions)


def _iterate_product(members: list[tuple[Node, str]]) -> Iterator[dict[str, Scalar]]:
    if not members:
        yield {}
        return
    (node, name), rest = members[0], members[1:]
    for first in _iterate_points(node, name):
        for others in _iterate_product(rest):
            yield {**first, **others}


def _iterate_points(node: Node, name: str) -> Iterator[dict[str, Scalar]]:
    if isinstance(node, Group | Branch):
        return node.points(name)
    if not node.test_values():
        return iter([{}])
    return ({name: value} for value in node.values())


def _combine_sizes(sizes: list[int | None], reduce: Any) -> int | None:
    finite = [size for size in sizes if size is not None]
    return int(reduce(finite)) if len(finite) == len(sizes) else None
