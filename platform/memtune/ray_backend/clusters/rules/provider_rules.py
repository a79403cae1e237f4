"""Rules about the provider and its node types, placeholders, and all that Ray itself refuses.

Ray's schema accepts any name under `provider:`, and Ray ignores an unknown one silently. The names are those
that the node providers of Ray 2.60 read. The autoscaler starts nodes by the declared number of GPUs alone:
with too many, trials wait for a node that can never hold them; with none, no node starts.
"""

import re
from collections.abc import Iterator
from typing import Any

from memtune.errors import did_you_mean
from memtune.ray_backend.clusters.cluster_file import ClusterFile, Problem
from memtune.ray_backend.clusters.compatibility import ClusterConfigError, validate_cluster_config

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
PLACEHOLDER = re.compile(r"EDIT-[\w-]+|\b(?:192\.0\.2|198\.51\.100|203\.0\.113)\.\d{1,3}\b")
"""The addresses are those that RFC 5737 reserves for documentation."""


def find_unknown_provider_fields(cluster: ClusterFile) -> Iterator[Problem]:
    """Names under `provider:` that aws, gcp or local does not read; no finding for other providers."""
    kind = cluster.provider.get("type")
    known = FIELDS_BY_PROVIDER.get(str(kind), cluster.provider)
    for name in cluster.provider:
        if name not in known:
            problem = f'the provider "{kind}" does not read "{name}"'
            yield f"provider.{name}", problem, f"remove it or rename it; {did_you_mean(str(name), known)}"


def find_wrong_gpu_counts(cluster: ClusterFile) -> Iterator[Problem]:
    """Node types whose `resources.GPU` is not an integer, or not that of their machine in the file."""
    for name, node_type in cluster.node_types.items():
        resources, machine = node_type.get("resources"), node_type.get("node_config")
        declared = resources.get("GPU", 0) if isinstance(resources, dict) else 0
        actual = _count_gpus(machine) if isinstance(machine, dict) else None
        where = f"available_node_types.{name}.resources.GPU"
        if not isinstance(declared, int) or isinstance(declared, bool):
            fix = "write an integer; for a share of a GPU, set gpus_per_trial under [resources] in the study"
            yield where, f"{declared!r} is not an integer", fix
        elif actual not in (None, declared):
            problem = f"{declared} declared, the machine has {actual}"
            yield where, problem, f"write GPU: {actual}, or name another machine"


def _count_gpus(machine: dict[str, Any]) -> int | None:
    """Google's accelerators, or the number in a name such as a2-highgpu-4g; None without both."""
    if accelerators := machine.get("guestAccelerators"):
        return sum(int(accelerator.get("acceleratorCount", 0)) for accelerator in accelerators)
    named = re.search(r"-(\d+)g(?:-\w+)?$", str(machine.get("machineType", "")))
    return int(named[1]) if named else None


def find_placeholders(cluster: ClusterFile) -> Iterator[Problem]:
    """The entries that still hold a placeholder."""
    fix = "replace it with your value; the comment next to it explains which"
    for where, text in _iterate_strings(cluster.config, ""):
        if found := PLACEHOLDER.search(text):
            yield where, f"{found[0]} is a placeholder", fix


def _iterate_strings(node: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every string below a node, with its dotted name."""
    if isinstance(node, str):
        yield where, node
        return
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in entries:
        yield from _iterate_strings(value, f"{where}.{name}" if where else str(name))


def find_schema_violations(cluster: ClusterFile) -> Iterator[Problem]:
    """At most one: Ray stops at the first violation."""
    try:
        validate_cluster_config(cluster.config)
    except ClusterConfigError as error:
        fix = "write the entry as in cluster.yaml, clusters/gcp.yaml or clusters/onprem.yaml"
        yield error.entry, f"Ray refuses it: {error.problem}", fix
