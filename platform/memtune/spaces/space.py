"""A search space: the tree of everything a study may try, and how one configuration is drawn from it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memtune.errors import SpaceError
from memtune.spaces.choosing import Chooser, Scalar
from memtune.spaces.leaves import Constant, FittedParameters
from memtune.spaces.tree import Branch, Group, Parameter

__all__ = ["CountParameters", "Space", "combine"]

CountParameters = Callable[[Mapping[str, Any]], int]
"""The closed-form parameter count of the model of a (nested) configuration."""


@dataclass(frozen=True, slots=True)
class Space:
    """A tree of parameters with the file it comes from and the question that file asks."""

    source: str
    root: Group | Branch
    question: str = ""

    def sample(self, chooser: Chooser, count_parameters: CountParameters | None = None) -> dict[str, Any]:
        """A nested configuration chosen by `chooser`.

        A fitted integer is solved with `count_parameters` after everything else is chosen; SpaceError
        when there is one and no such function, or when no integer comes near.
        """
        configuration = self.root.sample(chooser, "")
        for holder, key, fitted in _fitted(configuration):
            holder[key] = self._solve(configuration, holder, key, fitted, count_parameters)
        return configuration

    def leaves(self) -> list[Parameter]:
        """Every parameter that is chosen or solved, in the order of the file; constants are left out."""
        return list(self.root.parameters("", "", {}))

    def describe(self) -> dict[str, Any]:
        """The whole tree as plain values, by which equal spaces are equal; the question is left out."""
        return self.root.describe()

    def family_choices(self) -> list[dict[str, Scalar]]:
        """Each option of a branch at the root, as the parameter that chooses it; none without one."""
        if not isinstance(self.root, Branch):
            return []
        return [{self.root.key: option} for option in self.root.options]

    def size(self) -> int | None:
        """How many points the space has, None when there is a continuum of them."""
        return self.root.size()

    def points(self) -> Iterator[dict[str, Scalar]]:
        """Every point of a finite space: the values of its parameters by name."""
        assert self.size() is not None, "only a finite space has an end"
        return self.root.points("")

    @property
    def family(self) -> str | None:
        """The one model family of the space; None where it has no such constant."""
        model = self.root.members.get("model") if isinstance(self.root, Group) else None
        family = model.members.get("family") if isinstance(model, Group) else None
        return family.value if isinstance(family, Constant) and isinstance(family.value, str) else None

    def _solve(
        self,
        configuration: dict[str, Any],
        holder: dict[str, Any],
        key: str,
        fitted: FittedParameters,
        count_parameters: CountParameters | None,
    ) -> int:
        if count_parameters is None:
            raise SpaceError(
                f"{self.source}: [{key}] fit_parameters = {fitted.target} needs a function that counts a "
                "configuration's parameters; give it to the space, or the field a value"
            )

        def count(value: int) -> int:
            holder[key] = value
            return count_parameters(configuration)

        try:
            return fitted.solve(count)
        except SpaceError as error:
            raise SpaceError(
                f"{self.source}: [{key}] {error}; change the target or the other fields"
            ) from None


def combine(spaces: Iterable[Space]) -> Space:
    """One space that first chooses a family and then samples that family's own space, training included.

    Each space must hold a constant `family` in its [model]. Nothing is shared between families: two of them
    need different learning rates, so a parameter's name starts with its family
    (`lstm.training.optimiser.learning_rate`) and the choice itself is named `family`.
    """
    listed = list(spaces)
    if not listed:
        raise SpaceError("a study needs at least one search space")
    if len(listed) == 1:
        return listed[0]
    options: dict[str, Group] = {}
    for space in listed:
        family = space.family
        if family is None:
            raise SpaceError(
                f"{space.source}: to be combined with another, a space needs one model family, such as "
                'family = "lstm" under [model]'
            )
        if family in options:
            raise SpaceError(
                f'{space.source}: another space of the study is of family "{family}"; keep one of them'
            )
        assert isinstance(space.root, Group)
        options[family] = space.root
    questions = dict.fromkeys(space.question for space in listed if space.question)
    return Space(
        source=" + ".join(space.source for space in listed),
        root=Branch("family", options, written=False),
        question=" ".join(questions),
    )


def _fitted(configuration: dict[str, Any]) -> list[tuple[dict[str, Any], str, FittedParameters]]:
    found = []
    for key, value in configuration.items():
        if isinstance(value, dict):
            found += _fitted(value)
        elif isinstance(value, FittedParameters):
            found.append((configuration, key, value))
    return found
