"""The rule about names under `provider:`: Ray's schema accepts any, and Ray ignores an unknown one silently.

The names are those that the node providers of Ray 2.60 read.
"""

from memtune.errors import did_you_mean
from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding

__all__ = ["FIELDS_BY_PROVIDER", "find_unknown_provider_fields"]

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
