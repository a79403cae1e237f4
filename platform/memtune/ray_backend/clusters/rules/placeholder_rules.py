"""The rule about placeholders: values that only the user knows, as `EDIT-...` or an example address."""

import re
from collections.abc import Iterator
from typing import Any

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding

__all__ = ["find_placeholders"]

PLACEHOLDER = re.compile(r"EDIT-[\w-]+|\b(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}\b")
"""The addresses are those that RFC 5737 reserves for documentation."""


def find_placeholders(cluster: ClusterFile) -> list[Finding]:
    """One finding of kind "edit" for each entry that still holds a placeholder."""
    return [
        Finding(
            rule="edit",
            where=where,
            problem=f"{found[0]} is a placeholder",
            fix="replace it with your value; the comment next to it explains which",
            kind="edit",
        )
        for where, text in _iterate_strings(cluster.config, "")
        if (found := PLACEHOLDER.search(text))
    ]


def _iterate_strings(node: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every string below a node, with its dotted name."""
    if isinstance(node, str):
        yield where, node
        return
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in entries:
        yield from _iterate_strings(value, f"{where}.{name}" if where else str(name))
