"""Checks the names and bounds of a space against the schema of a configuration before a study starts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memtune.errors import ConfigurationError, SpaceError
from memtune.spaces.choosers import PinnedChooser, RandomChooser, Scalar
from memtune.spaces.space import MeasureSize, Space
from memtune.spaces.space_files import read_tree
from memtune.spaces.space_tree import Branch, Categorical, Constant, Group, Node
from memtune.values import Place, parse

SAMPLES_PER_VALUE = 20
"""Samples per value; a value may be invalid only together with some values of other fields."""


def check_space(
    space: Space, schema: Any, where: Place | None = None, measure_size: MeasureSize | None = None
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


def override_space(space: Space, overrides: Mapping[str, Any], source: str | None = None) -> Space:
    """The space with entries replaced by `overrides`, nested tables in the format of a space file.

    Overrides of a branch that name an option (`optimiser = { kind = "adam" }`) choose the option and override
    its parameters. Overrides with an unknown option replace the branch; overrides without an option apply to
    every option. Overrides of a combined space apply to every family. Errors about the overrides name
    `source` (default: the space's file).

    >>> from memtune.spaces import read_space
    >>> space = read_space("[model]\\nlayers = { int = [1, 3] }\\nwidth = { int = [8, 16] }", "example")
    >>> [each.name for each in override_space(space, {"model": {"layers": 2}}).parameters()]
    ['model.width']
    """
    if not overrides:
        return space
    over = read_tree(overrides, source or space.source)
    root = _merge_nodes(space.root, over)
    assert isinstance(root, Group | Branch)
    return replace(space, root=root)


def _merge_nodes(node: "Node | None", over: Node) -> Node:
    if isinstance(node, Group) and isinstance(over, Group):
        return _merge_group(node, over)
    if not (isinstance(node, Branch) and isinstance(over, Group)):
        return over
    chosen = over.members.get(node.key) if node.is_key_written else None
    if chosen is None:
        return replace(
            node, options={name: _merge_group(group, over) for name, group in node.options.items()}
        )
    if isinstance(chosen, Constant) and chosen.value in node.options:
        return _merge_group(node.options[chosen.value], over)
    return over


def _merge_group(group: Group, over: Group) -> Group:
    merged = {key: _merge_nodes(group.members.get(key), node) for key, node in over.members.items()}
    return Group({**group.members, **merged})
