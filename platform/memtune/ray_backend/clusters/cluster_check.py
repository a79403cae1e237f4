"""`memtune cluster check`: the faults of a cluster file, found without a cloud or a cluster."""

from pathlib import Path

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding, load_cluster
from memtune.ray_backend.clusters.rules import command_rules, provider_rules, upload_rules
from memtune.ray_backend.clusters.rules.version_rules import Versions, find_version_mismatches

RULES = (
    ("provider", provider_rules.find_unknown_provider_fields),
    ("gpus", provider_rules.find_wrong_gpu_counts),
    ("token", command_rules.find_missing_token),
    ("token", command_rules.find_exposed_token),
    ("ssh", command_rules.find_missing_ssh_user),
    ("dashboard", command_rules.find_exposed_dashboard),
    ("autoscaler", command_rules.find_autoscaler_v2),
    ("path", command_rules.find_unresolved_ray_commands),
    ("address", command_rules.find_ambiguous_addresses),
    ("address", command_rules.find_head_among_workers),
    ("host keys", command_rules.find_unverified_workers),
    ("upload", upload_rules.find_missing_mounts),
    ("upload", upload_rules.find_large_uploads),
    ("package", upload_rules.find_shadowed_standard_library),
    ("edit", provider_rules.find_placeholders),
)
"""The topic and the function of each rule."""


def check_cluster(path: Path, client: Versions | None = None) -> list[Finding]:
    """The findings about a cluster file; `client` has the versions of this machine.

    Raises ConfigurationError when the file cannot be read.
    """
    return collect_findings(load_cluster(path), client or Versions.detect())


def collect_findings(cluster: ClusterFile, client: Versions) -> list[Finding]:
    """The findings of all rules. Ray's schema adds none for an entry that a rule here explains."""
    found = [(topic, problem) for topic, rule in RULES for problem in rule(cluster)]
    found += [("versions", problem) for problem in find_version_mismatches(cluster, client)]
    explained = {where for topic, (where, *_) in found if topic != "edit"}
    refused = [
        problem for problem in provider_rules.find_schema_violations(cluster) if problem[0] not in explained
    ]
    return [
        Finding(
            rule=topic, where=where, problem=problem, fix=fix, kind="edit" if topic == "edit" else "fault"
        )
        for topic, (where, problem, fix) in [*(("schema", each) for each in refused), *found]
    ]
