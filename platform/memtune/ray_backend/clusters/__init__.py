"""Clusters that `ray up` launches: their files checked, then launched, queried and stopped.

Ray is imported on first use, because its import takes about a second.
"""

from memtune.ray_backend.clusters.cluster_check import Versions, check_cluster
from memtune.ray_backend.clusters.cluster_file import Finding, load_cluster
from memtune.ray_backend.clusters.cluster_launch import (
    format_findings,
    forward_dashboard,
    launch_cluster,
    query_status,
    stop_cluster,
)
