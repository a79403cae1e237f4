"""The rule that asks Ray: a cluster file has to satisfy the schema of `ray up`."""

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding
from memtune.ray_backend.compatibility import ClusterConfigError, validate_cluster_config

__all__ = ["find_schema_violations"]


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
