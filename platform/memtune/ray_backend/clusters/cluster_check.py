"""`memtune cluster check`: the faults of a cluster file, found without a cloud or a cluster."""

from pathlib import Path

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding, load_cluster
from memtune.ray_backend.clusters.rules.access_rules import (
    find_exposed_dashboard,
    find_exposed_token,
    find_missing_ssh_user,
    find_missing_token,
)
from memtune.ray_backend.clusters.rules.on_premises_rules import (
    find_ambiguous_addresses,
    find_autoscaler_v2,
    find_head_among_workers,
    find_unresolved_ray_commands,
    find_unverified_workers,
)
from memtune.ray_backend.clusters.rules.provider_rules import (
    find_placeholders,
    find_schema_violations,
    find_unknown_provider_fields,
    find_wrong_gpu_counts,
)
from memtune.ray_backend.clusters.rules.upload_rules import (
    find_large_uploads,
    find_missing_mounts,
    find_shadowed_standard_library,
)
from memtune.ray_backend.clusters.rules.version_rules import Versions, find_version_mismatches

RULES = (
    find_unknown_provider_fields,
    find_wrong_gpu_counts,
    find_missing_token,
    find_exposed_token,
    find_missing_ssh_user,
    find_exposed_dashboard,
    find_autoscaler_v2,
    find_unresolved_ray_commands,
    find_ambiguous_addresses,
    find_head_among_workers,
    find_unverified_workers,
    find_missing_mounts,
    find_large_uploads,
    find_shadowed_standard_library,
    find_placeholders,
)


def check_cluster(path: Path, client: Versions | None = None) -> list[Finding]:
    """The findings about a cluster file; `client` has the versions of this machine.

    Raises ConfigurationError when the file cannot be read.
    """
    return collect_findings(load_cluster(path), client or Versions.detect())


def collect_findings(cluster: ClusterFile, client: Versions) -> list[Finding]:
    """The findings of all rules. Ray's schema adds none for an entry that a rule here explains."""
    findings = [finding for rule in RULES for finding in rule(cluster)] + find_version_mismatches(
        cluster, client
    )
    explained = {finding.where for finding in findings if finding.kind == "fault"}
    return [
        finding for finding in find_schema_violations(cluster) if finding.where not in explained
    ] + findings
