"""`memtune cluster check`: what would go wrong with a cluster file, known before anything is launched."""

from pathlib import Path

from memtune.execution.clusters.authentication import (
    missing_token,
    no_ssh_user,
    open_dashboard,
    token_in_the_open,
)
from memtune.execution.clusters.delivery import hidden_standard_library, large_upload, missing_mount
from memtune.execution.clusters.file import ClusterFile, Finding, load_cluster
from memtune.execution.clusters.gpus import unknown_machines, wrong_gpu_counts
from memtune.execution.clusters.placeholders import to_edit
from memtune.execution.clusters.premises import (
    head_as_worker,
    ray_not_found,
    second_autoscaler,
    unclear_address,
)
from memtune.execution.clusters.providers import unknown_provider_names
from memtune.execution.clusters.schema import broken_schema
from memtune.execution.clusters.versions import Versions, unequal_versions

__all__ = ["check_cluster", "findings_of"]

RULES = (
    unknown_provider_names,
    wrong_gpu_counts,
    unknown_machines,
    missing_token,
    token_in_the_open,
    no_ssh_user,
    open_dashboard,
    second_autoscaler,
    ray_not_found,
    unclear_address,
    head_as_worker,
    missing_mount,
    large_upload,
    hidden_standard_library,
    to_edit,
)


def check_cluster(path: Path, client: Versions | None = None) -> list[Finding]:
    """What is wrong with a cluster file, without a cloud or a cluster; `client` is this machine's versions.

    Raises ConfigurationError when the file cannot be read.
    """
    return findings_of(load_cluster(path), client or Versions.here())


def findings_of(cluster: ClusterFile, client: Versions) -> list[Finding]:
    """What Ray's schema and every rule here find."""
    findings = [finding for rule in RULES for finding in rule(cluster)] + unequal_versions(cluster, client)
    found = {finding.where for finding in findings if finding.kind == "fault"}
    return [finding for finding in broken_schema(cluster) if finding.where not in found] + findings
