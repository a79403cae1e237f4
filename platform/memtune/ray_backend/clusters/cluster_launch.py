"""`memtune cluster up`, `status`, `dashboard` and `down`: check, run Ray's command, wait for its result.

`ray up` succeeds as soon as the head has started; workers join later or never. A launch here succeeds when
`min_workers` of each node type have joined.
"""

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from memtune.errors import ClusterError, ConfigurationError
from memtune.number_format import format_count
from memtune.ray_backend.clusters import cluster_file, ray_commands
from memtune.ray_backend.clusters.cluster_check import Versions, collect_findings
from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding, load_cluster
from memtune.ray_backend.clusters.compatibility import ClusterConfigError, complete_cluster_config
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
    command = [*ray_commands.build_ray_command(cluster, "exec"), "RAY_AUTH_MODE=token ray status"]
    done = _run(command, cluster, capture=True)
    if refused := ray_commands.find_refused_hosts(done.stdout + done.stderr):
        raise ray_commands.describe_changed_head_key(cluster, refused[0])
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


POLL_SECONDS = 5.0
"""Seconds between two queries of a cluster that is starting."""


def launch_cluster(
    path: Path, *, yes: bool, timeout_seconds: float, on_progress: Callable[[str], None]
) -> ClusterStatus:
    """Check the file, create the token, launch, and wait until the minimum number of nodes has joined.

    A head that is up is not restarted, so its jobs continue. Without `yes`, Ray asks before it launches.
    Raises ConfigurationError for a file with findings, HostKeyError for a host whose key changed, and
    ClusterError when the launch fails or the nodes have not joined after `timeout_seconds`.
    """
    cluster = load_cluster(path)
    if findings := collect_findings(cluster, Versions.detect()):
        raise ConfigurationError(f"{cluster.path} is not ready to launch\n{format_findings(findings)}")
    _check_head_key(cluster)
    if cluster_file.ensure_token(cluster_file.find_token_file(cluster)):
        on_progress(f"created the cluster's token in {cluster_file.find_token_file(cluster)}")
    try:
        running = query_status(cluster).node_count > 0
    except ClusterError:
        running = False
    if running:
        on_progress("the head is already up; its jobs continue")
    if _run(ray_commands.build_up_command(cluster, yes, restart=not running), cluster).returncode:
        raise ClusterError("ray up failed; the reason is in its output above")
    return _wait_for_nodes(cluster, timeout_seconds, on_progress)


def forward_dashboard(path: Path, port: int) -> None:
    """Forward the head's job server to `port` of this machine, until the user interrupts it.

    Raises HostKeyError for a head whose key changed, ClusterError when the connection fails.
    """
    cluster = load_cluster(path)
    _check_head_key(cluster)
    if _run(ray_commands.build_ray_command(cluster, "dashboard", "--port", str(port)), cluster).returncode:
        raise ClusterError(
            f"no connection to the job server of {path}; the reason is above; check that the cluster is up "
            f"(memtune cluster status {path}) and that port {port} is free (--port names another)"
        )


def stop_cluster(path: Path, *, yes: bool) -> None:
    """Stop every node of the cluster; without `yes`, Ray asks first.

    Raises HostKeyError for a head whose key changed, ClusterError when a node cannot be stopped.
    """
    cluster = load_cluster(path)
    _check_head_key(cluster)
    if _run(ray_commands.build_ray_command(cluster, "down", yes=yes), cluster).returncode:
        raise ClusterError("ray down failed; nodes may still run: check the list of your provider")
    ray_commands.forget_host_keys(cluster)
    stop = ray_commands.build_stop_workers_command(cluster)
    if stop and _run(stop, cluster).returncode:
        raise ClusterError(
            "the head is down; a worker named above did not answer: run `ray stop` on it when it is up again"
        )


def format_findings(findings: list[Finding]) -> str:
    """Two lines for each finding: the problem and the fix."""
    return "\n".join(f"{found.where}: {found.problem}\n    fix: {found.fix}" for found in findings)


def _check_head_key(cluster: ClusterFile) -> None:
    """Raise HostKeyError for a head on premises whose key changed.

    Reason: `ray up` would retry the connection for 15 minutes.
    """
    if cluster.is_on_premises:
        done = _run(ray_commands.build_head_command(cluster, "true"), cluster, capture=True)
        if refused := ray_commands.find_refused_hosts(done.stderr):
            raise ray_commands.describe_changed_head_key(cluster, refused[0])


def _wait_for_nodes(
    cluster: ClusterFile, timeout_seconds: float, on_progress: Callable[[str], None]
) -> ClusterStatus:
    deadline, reported = time.monotonic() + timeout_seconds, ""
    while True:
        try:
            # The autoscaler on the head retries a refused connection to a worker forever.
            asked = ray_commands.build_workers_command(cluster, "true")
            output = _run(asked, cluster, capture=True).stderr if asked else ""
            if refused := ray_commands.find_refused_hosts(output):
                raise ray_commands.describe_changed_worker_key(cluster, refused)
            status = query_status(cluster)
            state = f"{status.node_count} of {format_count(status.min_nodes, 'node')}"
            if status.node_count >= status.min_nodes:
                return status
        except ClusterError as error:
            state = str(error)
        if state != reported:
            on_progress(state)
            reported = state
        if time.monotonic() > deadline:
            raise ClusterError(
                f"after {timeout_seconds:.0f} s: {state}; the head's log has the reason: "
                "/tmp/ray/session_latest/logs/monitor*"
            )
        time.sleep(POLL_SECONDS)


def _run(
    command: list[str], cluster: ClusterFile, *, capture: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command with its output on the terminal, or captured."""
    return subprocess.run(
        command,
        cwd=cluster.folder,
        env=ray_commands.build_ray_environment(cluster),
        capture_output=capture,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
