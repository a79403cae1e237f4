"""The rule about names under `provider:`: Ray's schema accepts any, and Ray ignores an unknown one silently.

The names are those that the node providers of Ray 2.60 read.
"""

import re
from collections.abc import Iterator
from typing import Any

from memtune.errors import did_you_mean
from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding
from memtune.ray_backend.compatibility import ClusterConfigError, validate_cluster_config

COMMON_FIELDS = {
    "type",
    "use_internal_ips",
    "use_external_head_ip",
    "disable_node_updaters",
    "disable_launch_config_check",
    "foreground_node_launch",
    "worker_liveness_check",
}
CLOUD_FIELDS = {"region", "availability_zone", "cache_stopped_nodes"}
FIELDS_BY_PROVIDER = {
    "aws": COMMON_FIELDS | CLOUD_FIELDS | {"key_pair", "security_group", "aws_credentials", "cloudwatch"},
    "gcp": COMMON_FIELDS | CLOUD_FIELDS | {"project_id", "gcp_credentials"},
    "local": COMMON_FIELDS | {"head_ip", "worker_ips", "external_head_ip", "coordinator_address"},
}


def find_unknown_provider_fields(cluster: ClusterFile) -> list[Finding]:
    """Names under `provider:` that aws, gcp or local does not read; no finding for other providers."""
    kind = cluster.provider.get("type")
    known = FIELDS_BY_PROVIDER.get(str(kind))
    if known is None:
        return []
    return [
        Finding(
            rule="provider",
            where=f"provider.{name}",
            problem=f'the provider "{kind}" does not read "{name}"',
            fix=f"remove it or rename it; {did_you_mean(str(name), known)}",
        )
        for name in cluster.provider
        if name not in known
    ]


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


def find_schema_violations(cluster: ClusterFile) -> list[Finding]:
    """At most one finding: Ray stops at the first violation."""
    try:
        validate_cluster_config(cluster.config)
    except ClusterConfigError as error:
        return [
            Finding(
                rule="schema",
                where=error.entry,
                problem=f"Ray refuses it: {error.problem}",
                fix="write the entry as in cluster.yaml, clusters/gcp.yaml or clusters/onprem.yaml",
            )
        ]
    return []
