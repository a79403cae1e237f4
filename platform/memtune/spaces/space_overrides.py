"""Overrides of a space by a study: constants in place of parameters, or other ranges."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memtune.spaces.parameters import Constant
from memtune.spaces.space import Space
from memtune.spaces.space_files import read_tree
from memtune.spaces.space_tree import Branch, Group, Node

__all__ = ["override_space"]


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
    if isinstance(node, Branch) and isinstance(over, Group):
        return _merge_branch(node, over)
    return over


def _merge_group(group: Group, over: Group) -> Group:
    merged = {key: _merge_nodes(group.members.get(key), node) for key, node in over.members.items()}
    return Group({**group.members, **merged})


def _merge_branch(branch: Branch, over: Group) -> Node:
    chosen = over.members.get(branch.key) if branch.is_key_written else None
    if chosen is None:
        options = {name: _merge_group(group, over) for name, group in branch.options.items()}
        return replace(branch, options=options)
    if isinstance(chosen, Constant) and chosen.value in branch.options:
        return _merge_group(branch.options[chosen.value], over)
    return over
