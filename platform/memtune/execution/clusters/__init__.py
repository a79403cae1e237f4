"""Clusters that `ray up` launches: their files checked, launched, waited for and ended.

Ray is loaded on first use.
"""

from memtune.execution.clusters.check import check_cluster, findings_of
from memtune.execution.clusters.file import ClusterFile, Finding, load_cluster
from memtune.execution.clusters.launch import (
    ClusterStatus,
    cluster_down,
    cluster_status,
    cluster_up,
    describe,
)
from memtune.execution.clusters.versions import Versions

__all__ = [
    "ClusterFile",
    "ClusterStatus",
    "Finding",
    "Versions",
    "check_cluster",
    "cluster_down",
    "cluster_status",
    "cluster_up",
    "describe",
    "findings_of",
    "load_cluster",
]
