"""`memtune cluster up`, `status` and `down`: Ray's commands, with the checks before and the waiting after.

`ray up` is content when the head has started; the workers come after it, or never. So a launch ends here when
each node that the file asks for at the least is in the cluster.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from memtune.errors import ClusterError, ConfigurationError
from memtune.execution.clusters.check import findings_of
from memtune.execution.clusters.file import ClusterFile, Finding, load_cluster
from memtune.execution.clusters.schema import least_nodes
from memtune.execution.clusters.token import ensure_token, token_file
from memtune.execution.clusters.versions import Versions
from memtune.values import Value

__all__ = [
    "ClusterStatus",
    "cluster_down",
    "cluster_status",
    "cluster_up",
    "describe",
    "nodes_in",
    "ray_down",
    "ray_environment",
    "ray_status",
    "ray_up",
]

INTERVAL = 10.0
"""Seconds between two looks at a cluster that comes up."""
RAY = (sys.executable, "-m", "ray.scripts.scripts")


class ClusterStatus(Value):
    """What is in a cluster now."""

    nodes: dict[str, int]
    """Nodes in the cluster by their type, the head's included."""
    least: int
    """How many the file asks for at the least."""
    report: str
    """What `ray status` printed."""

    @property
    def present(self) -> int:
        """Nodes of every type."""
        return sum(self.nodes.values())


def cluster_up(path: Path, *, yes: bool, wait: float, tell: Callable[[str], None]) -> ClusterStatus:
    """Check the file, make the token, launch, and wait until the least number of nodes is there.

    `wait` is in seconds. Without `yes` Ray asks before it launches. `tell` hears of each step.
    Raises ConfigurationError for a file with findings, ClusterError when the launch fails or nodes stay away.
    """
    cluster = load_cluster(path)
    _refuse(cluster, findings_of(cluster, Versions.here()))
    if ensure_token(token_file(cluster)):
        tell(f"made the cluster's token in {token_file(cluster)}")
    done = subprocess.run(ray_up(cluster, yes), cwd=cluster.folder, env=ray_environment(cluster), check=False)
    if done.returncode:
        raise ClusterError(f"ray up ended with {done.returncode}; its output above says why")
    return _wait(cluster, wait, tell)


def cluster_status(path: Path) -> ClusterStatus:
    """What `ray status` says on the head. Raises ClusterError when the head does not answer."""
    return _status(load_cluster(path))


def cluster_down(path: Path, *, yes: bool) -> None:
    """End every node of the cluster; without `yes` Ray asks first. Raises ClusterError when that fails."""
    cluster = load_cluster(path)
    done = subprocess.run(
        ray_down(cluster, yes), cwd=cluster.folder, env=ray_environment(cluster), check=False
    )
    if done.returncode:
        raise ClusterError(
            f"ray down ended with {done.returncode}; nodes may still run: look at your provider's list"
        )


def ray_up(cluster: ClusterFile, yes: bool) -> list[str]:
    """The command that launches; the file is read afresh, whatever Ray has cached of it."""
    return [*RAY, "up", "--no-config-cache", *(["--yes"] if yes else []), str(cluster.path)]


def ray_down(cluster: ClusterFile, yes: bool) -> list[str]:
    """The command that ends every node."""
    return [*RAY, "down", *(["--yes"] if yes else []), str(cluster.path)]


def ray_status(cluster: ClusterFile) -> list[str]:
    """The command that asks the head what is in the cluster."""
    return [*RAY, "exec", str(cluster.path), "RAY_AUTH_MODE=token ray status"]


def ray_environment(cluster: ClusterFile) -> dict[str, str]:
    """The environment of Ray's commands: on premises with the autoscaler's first version."""
    version = {"RAY_UP_enable_autoscaler_v2": "0"} if cluster.on_premises else {}
    return {**os.environ, **version}


def describe(findings: list[Finding]) -> str:
    """Findings as text, two lines each: what is wrong and what to do."""
    return "\n".join(f"{found.where}: {found.problem}\n    fix: {found.fix}" for found in findings)


def nodes_in(report: str) -> dict[str, int]:
    """Nodes by type in what `ray status` prints: those it calls active and those it calls idle.

    Raises ClusterError when it is no such report.
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


def _refuse(cluster: ClusterFile, findings: list[Finding]) -> None:
    if findings:
        raise ConfigurationError(f"{cluster.path} is not ready to launch\n{describe(findings)}")


def _wait(cluster: ClusterFile, limit: float, tell: Callable[[str], None]) -> ClusterStatus:
    end, told = time.monotonic() + limit, ""
    while True:
        try:
            status = _status(cluster)
            now = f"{status.present} of {status.least} nodes"
            if status.present >= status.least:
                return status
        except ClusterError as error:
            now = str(error)
        if now != told:
            tell(now)
            told = now
        if time.monotonic() > end:
            raise ClusterError(
                f"after {limit:.0f} s: {now}; the reason is in: ray exec {cluster.path} "
                "'tail -n 100 /tmp/ray/session_latest/logs/monitor*'"
            )
        time.sleep(INTERVAL)


def _status(cluster: ClusterFile) -> ClusterStatus:
    done = subprocess.run(
        ray_status(cluster),
        cwd=cluster.folder,
        env=ray_environment(cluster),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise ClusterError(f"the head of {cluster.path} does not answer: {last}")
    return ClusterStatus(nodes=nodes_in(done.stdout), least=least_nodes(cluster), report=done.stdout)
