"""The nodes of a running cluster, read from the report of `ray status` on its head."""

import re
import subprocess

from memtune.errors import ClusterError
from memtune.ray_backend.clusters.cluster_file import ClusterFile
from memtune.ray_backend.clusters.host_keys import find_refused_hosts
from memtune.ray_backend.clusters.ray_commands import (
    build_ray_environment,
    build_status_command,
    describe_changed_head_key,
)
from memtune.ray_backend.compatibility import ClusterConfigError, complete_cluster_config
from memtune.values import Value

LOG_LINE_START = re.compile(r"^(?:\x1b\[\d*m)*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\s", re.MULTILINE)
"""The start of a line that Ray's commands log."""


class ClusterStatus(Value):
    """The nodes of a cluster at one time."""

    nodes: dict[str, int]
    """Running nodes by node type, the head included."""
    min_nodes: int
    """The number of nodes of the idle cluster, by its file."""
    report: str
    """The output of `ray status`."""

    @property
    def node_count(self) -> int:
        """Running nodes of all types."""
        return sum(self.nodes.values())


def query_status(cluster: ClusterFile) -> ClusterStatus:
    """Run `ray status` on the head.

    Raises HostKeyError when the head's host key changed, ClusterError when the head does not answer.
    """
    done = subprocess.run(
        build_status_command(cluster),
        cwd=cluster.folder,
        env=build_ray_environment(cluster),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if refused := find_refused_hosts(done.stdout + done.stderr):
        raise describe_changed_head_key(cluster, refused[0])
    if done.returncode:
        raise ClusterError(f"the head of {cluster.path} does not answer: {_extract_failure_reason(done)}")
    report = extract_status_report(done.stdout)
    return ClusterStatus(nodes=parse_node_counts(report), min_nodes=count_min_nodes(cluster), report=report)


def count_min_nodes(cluster: ClusterFile) -> int:
    """The nodes of an idle cluster: the head, and `min_workers` of each node type.

    Raises ClusterError for a file that Ray refuses.
    """
    try:
        types = complete_cluster_config(cluster.config).get("available_node_types", {}).values()
    except ClusterConfigError as error:
        raise ClusterError(f"{cluster.path}: Ray refuses it: {error.problem}") from error
    return 1 + sum(int(node_type.get("min_workers", 0)) for node_type in types)


def extract_status_report(output: str) -> str:
    """The report of `ray status`, without the lines that `ray exec` logs around it."""
    start = max(output.find("======== Autoscaler status"), 0)
    return re.sub(r"\x1b\[\d*m|\r", "", LOG_LINE_START.split(output[start:], maxsplit=1)[0]).rstrip()


def parse_node_counts(report: str) -> dict[str, int]:
    """Nodes by type in a report of `ray status`: those under "Active" and under "Idle".

    Raises ClusterError for another text.
    """
    lines = [line.rstrip("\r ") for line in report.splitlines()]
    if "Active:" not in lines:
        raise ClusterError("the head printed no status; the cluster may still be starting")
    nodes: dict[str, int] = {}
    counted = False
    for line in lines[lines.index("Active:") :]:
        counted = line in ("Active:", "Idle:") or (counted and line.startswith(" "))
        found = re.fullmatch(r" (\d+) (\S+)", line) if counted else None
        if found:
            nodes[found[2]] = nodes.get(found[2], 0) + int(found[1])
    return nodes


def _extract_failure_reason(process: subprocess.CompletedProcess[str]) -> str:
    """The last line that the command on the head printed, or else the last one of ssh or Ray."""
    irrelevant = re.compile(r"\s*$|\s*ssh -|.*Command failed:|Shared connection|Warning: Permanently added")
    remote = LOG_LINE_START.split(process.stdout, maxsplit=1)[0]
    lines = [*process.stderr.splitlines(), *remote.splitlines()]
    reasons = [
        line.strip() for line in lines if not irrelevant.match(line) and not LOG_LINE_START.match(line)
    ]
    return reasons[-1] if reasons else f"ray exec ended with {process.returncode}"
