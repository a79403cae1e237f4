"""Checks the names and bounds of a space against the schema of a configuration before a study starts."""

from collections.abc import Mapping
from typing import Any

from memtune.errors import ConfigurationError, SpaceError
from memtune.spaces.choosers import PinnedChooser, RandomChooser, Scalar
from memtune.spaces.parameters import Categorical
from memtune.spaces.space import MeasureSize, Space
from memtune.values import Place, parse

__all__ = ["check_space"]

SAMPLES_PER_VALUE = 20
"""Samples per value; a value may be invalid only together with some values of other fields."""


def check_space(
    space: Space,
    schema: Any,
    where: Place | None = None,
    measure_size: MeasureSize | None = None,
) -> None:
    """Raise SpaceError unless each end of every range and each choice is valid in at least one sample.

    It checks every option of every branch. The error suggests the nearest known name for an unknown name and
    gives the schema's message for an invalid value. Messages name the space `where` (default: its file). A
    space with a fitted integer needs `measure_size`.
    """
    source = where or space.source
    problems = _find_problems(space, schema, source, {}, measure_size)
    invalid: set[tuple[str, Scalar]] = set()
    for parameter in [] if problems else space.parameters():
        if not invalid.isdisjoint(parameter.conditions.items()):
            continue
        for value in parameter.leaf.test_values():
            file = source if isinstance(source, str) else source(parameter.field)
            place = f"{file}: [{parameter.field}] = {value!r}"
            pinned = {**parameter.conditions, parameter.name: value}
            if value_problems := _find_problems(space, schema, place, pinned, measure_size):
                problems += value_problems
                invalid.add((parameter.name, value))
                if not isinstance(parameter.leaf, Categorical):
                    break
    if problems:
        raise SpaceError("\n".join(problems))


def _find_problems(
    space: Space, schema: Any, where: Place, pinned: Mapping[str, Scalar], measure_size: MeasureSize | None
) -> list[str]:
    """The errors of the first sample with the pinned values; empty if another sample is valid."""
    first: list[str] = []
    for seed in range(SAMPLES_PER_VALUE):
        try:
            parse(schema, space.sample(PinnedChooser(pinned, RandomChooser(seed)), measure_size), where)
        except ConfigurationError as error:
            first = first or str(error).splitlines()
        else:
            return []
    return first
