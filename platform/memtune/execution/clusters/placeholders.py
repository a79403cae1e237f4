"""Values of a cluster file that only its user knows: `EDIT-...`, or addresses kept for documentation."""

import re
from collections.abc import Iterator
from typing import Any

from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["to_edit"]

PLACEHOLDER = re.compile(r"EDIT-[\w-]+|\b(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}\b")
"""The addresses are those that RFC 5737 keeps for documentation."""


def to_edit(cluster: ClusterFile) -> list[Finding]:
    """One finding of kind "edit" for each entry that still holds a placeholder."""
    return [
        Finding(
            rule="edit",
            where=where,
            problem=f"{found[0]} stands for a value of yours",
            fix="the comment beside it says what belongs there",
            kind="edit",
        )
        for where, text in _texts(cluster.config, "")
        if (found := PLACEHOLDER.search(text))
    ]


def _texts(node: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text below a node with its dotted place."""
    if isinstance(node, str):
        yield where, node
        return
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in entries:
        yield from _texts(value, f"{where}.{name}" if where else str(name))
