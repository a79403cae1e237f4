"""Every name and bound of a space, checked against the schema of a configuration before anything starts."""

from collections.abc import Mapping
from typing import Any

from memtune.errors import ConfigurationError, SpaceError
from memtune.spaces.choosing import PinnedChooser, RandomChooser, Scalar
from memtune.spaces.leaves import Categorical
from memtune.spaces.space import CountParameters, Space
from memtune.values import parse

__all__ = ["check_space"]

SAMPLES = 20
"""Samples in which a value is tried: fields may forbid each other, so one refusal does not condemn it."""


def check_space(
    space: Space,
    schema: Any,
    where: str | None = None,
    count_parameters: CountParameters | None = None,
) -> None:
    """SpaceError unless the schema takes both ends of every range and every choice, each in some sample.

    Every option of every branch is visited. An unknown name is told with the nearest right one, a bound
    out of range with what the schema says about it; `where` stands for the space in messages (default: its
    file). `count_parameters` is needed where the space fits an integer.
    """
    source = where or space.source
    problems = _problems(space, schema, source, {}, count_parameters)
    refused: set[tuple[str, Scalar]] = set()
    for parameter in [] if problems else space.leaves():
        if not refused.isdisjoint(parameter.opened_by.items()):
            continue
        for value in parameter.leaf.probes():
            place = f"{source}: [{parameter.field}] = {value!r}"
            pinned = {**parameter.opened_by, parameter.name: value}
            if found := _problems(space, schema, place, pinned, count_parameters):
                problems += found
                refused.add((parameter.name, value))
                if not isinstance(parameter.leaf, Categorical):
                    break
    if problems:
        raise SpaceError("\n".join(problems))


def _problems(
    space: Space, schema: Any, where: str, pinned: Mapping[str, Scalar], count: CountParameters | None
) -> list[str]:
    """What is said against the first sample that holds the pinned values, unless another one is taken."""
    first: list[str] = []
    for seed in range(SAMPLES):
        try:
            parse(schema, space.sample(PinnedChooser(pinned, RandomChooser(seed)), count), where)
        except ConfigurationError as error:
            first = first or str(error).splitlines()
        else:
            return []
    return first
