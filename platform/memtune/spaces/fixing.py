"""A study's own constants put over a space: what is fixed is no longer searched."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memtune.spaces.leaves import Constant, Leaf
from memtune.spaces.space import Space
from memtune.spaces.tree import Branch, Group

__all__ = ["fix"]


def fix(space: Space, constants: Mapping[str, Any]) -> Space:
    """The space with `constants` (a nested configuration) in the place of its own entries.

    Tables are merged, and a value replaces what the space had there. A table that names a branch's key, such
    as `kind` under an optimiser, replaces the whole branch; one that does not is merged into every option.

    >>> from memtune.spaces import read_space
    >>> space = read_space("[model]\\nlayers = { int = [1, 3] }\\nwidth = { int = [8, 16] }", "example")
    >>> [leaf.name for leaf in fix(space, {"model": {"layers": 2}}).leaves()]
    ['model.width']
    """
    root = _merged(space.root, constants)
    assert isinstance(root, Group | Branch)
    return replace(space, root=root)


def _merged(node: Leaf | Group | Branch | None, constant: Any) -> Leaf | Group | Branch:
    if not isinstance(constant, Mapping):
        return Constant(constant)
    if isinstance(node, Branch) and node.key not in constant:
        return replace(node, options={name: _group(group, constant) for name, group in node.options.items()})
    return _group(node if isinstance(node, Group) else Group({}), constant)


def _group(group: Group, constants: Mapping[str, Any]) -> Group:
    merged = {key: _merged(group.members.get(key), value) for key, value in constants.items()}
    return Group({**group.members, **merged})
