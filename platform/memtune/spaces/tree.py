"""The tree of a space: groups of named nodes, and branches that open one of several groups."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from memtune.spaces.choosing import Chooser, Scalar
from memtune.spaces.leaves import Categorical, FittedParameters, Leaf

__all__ = ["Branch", "Group", "Node", "Parameter", "fitted_count", "join"]

Node: TypeAlias = "Leaf | Group | Branch"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A leaf at its place: what is sampled, under which name, for which field, and when.

    `name` is what the chooser is asked for, options of branches included; `field` the dotted place in the
    configuration; `opened_by` the choices of branches, by name, without which it is not sampled.
    """

    name: str
    field: str
    leaf: Leaf
    opened_by: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Group:
    """A table: every member is sampled."""

    members: "Mapping[str, Node]"

    def sample(self, chooser: Chooser, name: str) -> dict[str, Any]:
        """A value for every member."""
        return {key: node.sample(chooser, join(name, key)) for key, node in self.members.items()}

    def describe(self) -> dict[str, Any]:
        """As in a space file, every default filled in."""
        return {key: node.describe() for key, node in self.members.items()}

    def size(self) -> int | None:
        """The product of the members' sizes."""
        return _combined([node.size() for node in self.members.values()], math.prod)

    def parameters(self, name: str, place: str, opened_by: Mapping[str, str]) -> Iterator[Parameter]:
        """The parameters of every member, in the order of the file."""
        for key, node in self.members.items():
            yield from _parameters(node, join(name, key), join(place, key), opened_by)

    def points(self, name: str) -> Iterator[dict[str, Scalar]]:
        """Every combination of the members' values, by parameter name; the last member varies fastest."""
        return _product([(node, join(name, key)) for key, node in self.members.items()])


@dataclass(frozen=True, slots=True)
class Branch:
    """A choice between groups: the option's name is written under `key`, and only its group is sampled.

    `written` is False where the groups say themselves which they are (families combined in one space).
    """

    key: str
    options: Mapping[str, Group]
    written: bool = True

    def sample(self, chooser: Chooser, name: str) -> dict[str, Any]:
        """The chosen option's group."""
        chosen = chooser.suggest_categorical(join(name, self.key), tuple(self.options))
        assert isinstance(chosen, str)
        inner = self.options[chosen].sample(chooser, join(name, chosen))
        return {self.key: chosen, **inner} if self.written else inner

    def describe(self) -> dict[str, Any]:
        """As in a space file, every default filled in."""
        return {"one_of": self.key, **{option: group.describe() for option, group in self.options.items()}}

    def size(self) -> int | None:
        """The sum of the options' sizes."""
        return _combined([group.size() for group in self.options.values()], sum)

    def parameters(self, name: str, place: str, opened_by: Mapping[str, str]) -> Iterator[Parameter]:
        """The choice itself, then every option's parameters."""
        choice = join(name, self.key)
        yield Parameter(choice, join(place, self.key), Categorical(tuple(self.options)), opened_by)
        for option, group in self.options.items():
            yield from group.parameters(join(name, option), place, {**opened_by, choice: option})

    def points(self, name: str) -> Iterator[dict[str, Scalar]]:
        """Every option with every point of its group."""
        for option, group in self.options.items():
            for point in group.points(join(name, option)):
                yield {join(name, self.key): option, **point}


def join(name: str, key: str) -> str:
    """The dotted name of a member.

    >>> join("model", "layers"), join("", "model")
    ('model.layers', 'model')
    """
    return f"{name}.{key}" if name else key


def fitted_count(node: Node) -> int:
    """The most fitted integers that one configuration of the node can hold."""
    if isinstance(node, Group):
        return sum(fitted_count(member) for member in node.members.values())
    if isinstance(node, Branch):
        return max((fitted_count(group) for group in node.options.values()), default=0)
    return int(isinstance(node, FittedParameters))


def _parameters(node: Node, name: str, place: str, opened_by: Mapping[str, str]) -> Iterator[Parameter]:
    if isinstance(node, Group | Branch):
        yield from node.parameters(name, place, opened_by)
    elif isinstance(node, FittedParameters) or node.probes():
        yield Parameter(name, place, node, opened_by)


def _product(members: list[tuple[Node, str]]) -> Iterator[dict[str, Scalar]]:
    if not members:
        yield {}
        return
    (node, name), rest = members[0], members[1:]
    for first in _points(node, name):
        for others in _product(rest):
            yield {**first, **others}


def _points(node: Node, name: str) -> Iterator[dict[str, Scalar]]:
    if isinstance(node, Group | Branch):
        return node.points(name)
    if not node.probes():
        return iter([{}])
    return ({name: value} for value in node.values())


def _combined(sizes: list[int | None], combine: Any) -> int | None:
    finite = [size for size in sizes if size is not None]
    return int(combine(finite)) if len(finite) == len(sizes) else None
