"""Names under `provider:`: Ray's schema lets any pass, and a misspelt one is silently not used.

The names are those that the node providers of Ray 2.60 read.
"""

from memtune.errors import did_you_mean
from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["PROVIDERS", "unknown_provider_names"]

EVERY = {
    "type",
    "use_internal_ips",
    "use_external_head_ip",
    "disable_node_updaters",
    "disable_launch_config_check",
    "foreground_node_launch",
    "worker_liveness_check",
}
CLOUD = {"region", "availability_zone", "cache_stopped_nodes"}
PROVIDERS = {
    "aws": EVERY | CLOUD | {"key_pair", "security_group", "aws_credentials", "cloudwatch"},
    "gcp": EVERY | CLOUD | {"project_id", "gcp_credentials"},
    "local": EVERY | {"head_ip", "worker_ips", "external_head_ip", "coordinator_address"},
}


def unknown_provider_names(cluster: ClusterFile) -> list[Finding]:
    """Names under `provider:` that this provider does not read. Other providers are not known here."""
    kind = cluster.provider.get("type")
    known = PROVIDERS.get(str(kind))
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
