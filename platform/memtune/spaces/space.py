"""A search space: a tree of parameters that samples configurations, checked with their schema."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memtune.errors import ConfigurationError, SpaceError
from memtune.spaces.choosers import Chooser, RandomChooser, Scalar
from memtune.spaces.space_tree import Branch, Categorical, Constant, FittedSize, Group, Parameter, SizeKind
from memtune.values import Place, parse

FAMILY_FIELD = "model.family"

MeasureSize = Callable[[Mapping[str, Any], SizeKind], int]
"""A size of the model of a (nested) configuration, by formula."""


@dataclass(frozen=True, slots=True)
class Space:
    """A tree of parameters, its file with its question, and configurations as values by dotted field."""

    source: str
    root: Group | Branch
    question: str = ""
    paper_points: tuple[Mapping[str, Scalar], ...] = ()
    """Settings of papers."""
    prior_points: tuple[Mapping[str, Scalar], ...] = ()
    """Configurations that are believed to be good, the best of the family first."""

    def sample(self, chooser: Chooser, measure_size: MeasureSize | None = None) -> dict[str, Any]:
        """A nested configuration chosen by `chooser`.

        `measure_size` solves a fitted integer after all other fields are chosen. Raises SpaceError for a
        fitted integer without `measure_size` or without a solution.
        """
        configuration = self.root.sample(chooser, "")
        for holder, key, fitted in _find_fitted(configuration):
            holder[key] = self._solve_fitted(configuration, holder, key, fitted, measure_size)
        return configuration

    def parameters(self) -> list[Parameter]:
        """Every parameter, chosen or solved, in the order of the file; without constants."""
        return list(self.root.parameters("", "", {}))

    def describe(self) -> dict[str, Any]:
        """The tree as plain values, without the question; equal spaces have equal descriptions."""
        return self.root.describe()

    def family_choices(self) -> list[dict[str, Scalar]]:
        """The options of a branch at the root, each as {parameter: option}; empty for another root."""
        if not isinstance(self.root, Branch):
            return []
        return [{self.root.key: option} for option in self.root.options]

    def list_alternatives(self, field: str) -> list[dict[str, Scalar]]:
        """The parameters that choose each value of a field, in each family that has it.

        A family without the field is an alternative of its own. A range of many numbers leaves the families.
        Each alternative comes once before one comes again, in another family.
        """
        found = [
            (value, {**parameter.conditions, parameter.name: value})
            for parameter in self.parameters()
            if parameter.field == field
            for value in parameter.list_alternatives()
        ]
        for own in self.family_choices():
            if not any(own.items() <= choice.items() for _, choice in found):
                found.append((str(own), own))
        values = [value for value, _ in found]
        earlier = [values[:place].count(value) for place, value in enumerate(values)]
        return [found[place][1] for place in sorted(range(len(found)), key=earlier.__getitem__)]

    def size(self) -> int | None:
        """Number of points of the space; None if a parameter is continuous."""
        return self.root.size()

    def points(self) -> Iterator[dict[str, Scalar]]:
        """Every point of a finite space: the values of its parameters by name."""
        assert self.size() is not None, "a space with a continuous parameter has no finite number of points"
        return self.root.points("")

    @property
    def family(self) -> str | None:
        """The model family of the space; None without a constant family."""
        model = self.root.members.get("model") if isinstance(self.root, Group) else None
        family = model.members.get("family") if isinstance(model, Group) else None
        return family.value if isinstance(family, Constant) and isinstance(family.value, str) else None

    def _solve_fitted(
        self,
        configuration: dict[str, Any],
        holder: dict[str, Any],
        key: str,
        fitted: FittedSize,
        measure_size: MeasureSize | None,
    ) -> int:
        place = fitted.place or self.source
        if measure_size is None:
            raise SpaceError(
                f"{place}: [{key}] {fitted.name} = {fitted.target} needs a function that measures a "
                "configuration's sizes; give it to the space, or the field a value"
            )

        def measure(value: int) -> int:
            holder[key] = value
            return measure_size(configuration, fitted.size_kind)

        try:
            return fitted.solve(measure)
        except SpaceError as error:
            family = configuration.get("model", {}).get("family")
            owner = f" of {family}" if isinstance(family, str) else ""
            raise SpaceError(
                f"{place}: [{key}] {error}; change the target or the other fields{owner}"
            ) from None


def combine_spaces(spaces: Iterable[Space]) -> Space:
    """One space that first chooses a family and then samples that family's own space, training included.

    Each space must hold a constant `family` in its [model]. Families share no parameters, because they need
    different learning rates: a parameter's name starts with its family
    (`lstm.training.optimiser.learning_rate`), and the choice itself is named `family`. Raises SpaceError for
    no space, for a space without a family, and for two spaces of one family.
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
        root=Branch("family", options, is_key_written=False, field=FAMILY_FIELD),
        question=" ".join(questions),
        paper_points=tuple({FAMILY_FIELD: s.family, **point} for s in listed for point in s.paper_points),
        prior_points=tuple({FAMILY_FIELD: s.family, **point} for s in listed for point in s.prior_points),
    )


def _find_fitted(configuration: dict[str, Any]) -> list[tuple[dict[str, Any], str, FittedSize]]:
    found = []
    for key, value in configuration.items():
        if isinstance(value, dict):
            found += _find_fitted(value)
        elif isinstance(value, FittedSize):
            found.append((configuration, key, value))
    return found


SAMPLES_PER_VALUE = 20
"""Samples per value; a value may be invalid only together with some values of other fields."""


def check_space(
    space: Space, schema: Any, where: Place | None = None, measure_size: MeasureSize | None = None
) -> None:
    """Raise SpaceError unless each end of every range and each choice is valid in at least one sample.

    Two choices that are one configuration, such as two spellings of a mixer, are refused.

    It checks every option of every branch. The error suggests the nearest known name for an unknown name and
    gives the schema's message for an invalid value. Messages name the space `where` (default: its file). A
    space with a fitted integer needs `measure_size`.
    """
    source = where or space.source
    problems, _ = _find_problems(space, schema, source, {}, measure_size)
    invalid: set[tuple[str, Scalar]] = set()
    for parameter in [] if problems else space.parameters():
        if not invalid.isdisjoint(parameter.conditions.items()):
            continue
        configurations: list[Any] = []
        for value in parameter.leaf.test_values():
            file = source if isinstance(source, str) else source(parameter.field)
            place = f"{file}: [{parameter.field}] = {value!r}"
            pinned = {**parameter.conditions, parameter.name: value}
            value_problems, configuration = _find_problems(space, schema, place, pinned, measure_size)
            is_choice = configuration is not None and isinstance(parameter.leaf, Categorical)
            if is_choice and configuration in configurations:
                equal = parameter.leaf.test_values()[configurations.index(configuration)]
                value_problems = [f"{place} is the same as {equal!r}; leave one of them out"]
            configurations.append(configuration)
            if value_problems:
                problems += value_problems
                invalid.add((parameter.name, value))
                if not isinstance(parameter.leaf, Categorical):
                    break
    if problems:
        raise SpaceError("\n".join(problems))


def _find_problems(
    space: Space, schema: Any, where: Place, pinned: Mapping[str, Scalar], measure_size: MeasureSize | None
) -> tuple[list[str], Any]:
    """The errors of the first sample with the pinned values, or the first valid one and no errors."""
    first: list[str] = []
    for seed in range(SAMPLES_PER_VALUE):
        try:
            sampled = space.sample(RandomChooser(seed, pinned), measure_size)
        except ConfigurationError as error:  # of the size that a field is fitted to, which names its place
            prefix = f"{where}: " if pinned else ""
            first = first or [f"{prefix}{line}" for line in str(error).splitlines()]
            continue
        try:
            configuration = parse(schema, sampled, where)
        except ConfigurationError as error:
            first = first or str(error).splitlines()
        else:
            return [], configuration
    return first, None
