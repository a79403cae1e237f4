"""Laying a study's own entries over a space: constants instead of parameters, or other ranges."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memtune.spaces.leaves import Constant
from memtune.spaces.reading import read_tree
from memtune.spaces.space import Space
from memtune.spaces.tree import Branch, Group, Node

__all__ = ["fix"]


def fix(space: Space, entries: Mapping[str, Any], source: str | None = None) -> Space:
    """The space with `entries` in the place of its own: nested tables, written as in a space file.

    Entries under a branch that name an option (`optimiser = { kind = "adam" }`) choose it and are laid over
    its parameters; naming another replaces the branch, and naming none holds for every option. Entries of a
    combined space hold for every family. `source` is what errors about the entries call them (default: the
    space's file).

    >>> from memtune.spaces import read_space
    >>> space = read_space("[model]\\nlayers = { int = [1, 3] }\\nwidth = { int = [8, 16] }", "example")
    >>> [leaf.name for leaf in fix(space, {"model": {"layers": 2}}).leaves()]
    ['model.width']
    """
    if not entries:
        return space
    over = read_tree(entries, source or space.source)
    root = _laid_over(space.root, over)
    assert isinstance(root, Group | Branch)
    return replace(space, root=root)


def _laid_over(node: "Node | None", over: Node) -> Node:
    if isinstance(node, Group) and isinstance(over, Group):
        return _group(node, over)
    if isinstance(node, Branch) and isinstance(over, Group):
        return _branch(node, over)
    return over


def _group(group: Group, over: Group) -> Group:
    laid = {key: _laid_over(group.members.get(key), node) for key, node in over.members.items()}
    return Group({**group.members, **laid})


def _branch(branch: Branch, over: Group) -> Node:
    chosen = over.members.get(branch.key) if branch.written else None
    if chosen is None:
        options = {name: _group(group, over) for name, group in branch.options.items()}
        return replace(branch, options=options)
    if isinstance(chosen, Constant) and chosen.value in branch.options:
        return _group(branch.options[chosen.value], over)
    return over
