"""`memtune cluster up`, `status` and `down`: Ray's commands, with the checks before and the waiting after.

`ray up` is content when the head has started; the workers come after it, or never. So a launch ends here when
each node that the file asks for at the least is in the cluster.
"""

import os
import re
import shlex
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
from memtune.execution.wording import counted
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
    "report_in",
    "stop_workers",
]

INTERVAL = 5.0
"""Seconds between two looks at a cluster that comes up."""
RAY = (sys.executable, "-m", "ray.scripts.scripts")
KEY_ON_HEAD = "~/ray_bootstrap_key.pem"
"""Where `ray up` puts the key with which the head reaches its workers."""
SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o ConnectTimeout=20"
"""As Ray does: hosts are not known by their keys."""
AT_ONCE = 16
"""Workers that are asked to stop at one time."""
LOGGED = re.compile(r"^(?:\x1b\[\d*m)*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\s", re.MULTILINE)
"""How a line starts that Ray's own commands log."""


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

    Where the head answers already, nothing on it is restarted: its jobs go on. `wait` is in seconds. Without
    `yes` Ray asks before it launches. `tell` hears of each step.
    Raises ConfigurationError for a file with findings, ClusterError when the launch fails or nodes stay away.
    """
    cluster = load_cluster(path)
    _refuse(cluster, findings_of(cluster, Versions.here()))
    if ensure_token(token_file(cluster)):
        tell(f"made the cluster's token in {token_file(cluster)}")
    running = _answers(cluster)
    if running:
        tell("the head is up already: what runs on it goes on")
    if _run(ray_up(cluster, yes, restart=not running), cluster):
        raise ClusterError("ray up failed; its output above says why")
    return _wait(cluster, wait, tell)


def cluster_status(path: Path) -> ClusterStatus:
    """What `ray status` says on the head. Raises ClusterError when the head does not answer."""
    return _status(load_cluster(path))


def cluster_down(path: Path, *, yes: bool) -> None:
    """End every node of the cluster; without `yes` Ray asks first. Raises ClusterError when that fails."""
    cluster = load_cluster(path)
    if _run(ray_down(cluster, yes), cluster):
        raise ClusterError("ray down failed; nodes may still run: look at your provider's list")
    stop = stop_workers(cluster)
    if stop and _run(stop, cluster):
        raise ClusterError(
            "the head is down; a worker named above did not answer: run `ray stop` on it when it is back"
        )


def ray_up(cluster: ClusterFile, yes: bool, restart: bool = True) -> list[str]:
    """The command that launches; the file is read afresh, whatever Ray has cached of it."""
    options = [*(["--yes"] if yes else []), *([] if restart else ["--no-restart"])]
    return [*RAY, "up", "--no-config-cache", *options, str(cluster.path)]


def ray_down(cluster: ClusterFile, yes: bool) -> list[str]:
    """The command that ends every node; on premises it ends Ray on the head alone."""
    return [*RAY, "down", *(["--yes"] if yes else []), str(cluster.path)]


def stop_workers(cluster: ClusterFile) -> list[str]:
    """On premises, the command that ends Ray on each worker, by way of the head; empty elsewhere.

    A worker whose head is gone ends by itself after a minute, and leaves some of Ray's processes behind.
    """
    hosts = cluster.provider.get("worker_ips")
    if not cluster.on_premises or not hosts:
        return []
    user, key = cluster.table("auth").get("ssh_user"), cluster.table("auth").get("ssh_private_key")
    proxy = cluster.table("auth").get("ssh_proxy_command")
    head = cluster.provider.get("external_head_ip") or cluster.provider.get("head_ip")
    commands = cluster.commands("worker_start_ray_commands")
    stop = "; ".join(command for command in commands if re.search(r"\bray stop\b", command))
    to_worker = f"ssh -n {SSH} -o BatchMode=yes {f'-i {KEY_ON_HEAD}' if key else ''} {user}@HOST"
    script = f"printf '%s\\n' {shlex.join(map(str, hosts))} | xargs -P {AT_ONCE} -I HOST {to_worker}"
    by_key = ["-i", str(Path(key).expanduser())] if key else []
    by_proxy = ["-o", f"ProxyCommand={proxy}"] if proxy else []
    return ["ssh", *SSH.split(), *by_key, *by_proxy, f"{user}@{head}", f"{script} {shlex.quote(stop)}"]


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


def report_in(printed: str) -> str:
    """What `ray status` said, without what `ray exec` logs around it."""
    start = max(printed.find("======== Autoscaler status"), 0)
    return re.sub(r"\x1b\[\d*m|\r", "", LOGGED.split(printed[start:], maxsplit=1)[0]).rstrip()


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
            now = f"{status.present} of {counted(status.least, 'node')}"
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
        raise ClusterError(f"the head of {cluster.path} does not answer: {_reason(done)}")
    report = report_in(done.stdout)
    return ClusterStatus(nodes=nodes_in(report), least=least_nodes(cluster), report=report)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why `ray exec` failed: the last line that the command on the head printed, else that of ssh or Ray."""
    around = re.compile(r"\s*$|\s*ssh -|.*Command failed:|Shared connection|Warning: Permanently added")
    remote = LOGGED.split(done.stdout, maxsplit=1)[0]
    lines = [*done.stderr.splitlines(), *remote.splitlines()]
    said = [line.strip() for line in lines if not around.match(line) and not LOGGED.match(line)]
    return said[-1] if said else f"ray exec ended with {done.returncode}"


def _answers(cluster: ClusterFile) -> bool:
    try:
        return _status(cluster).present > 0
    except ClusterError:
        return False


def _run(command: list[str], cluster: ClusterFile) -> int:
    """A command's exit status, its output shown as it comes."""
    environment = ray_environment(cluster)
    return subprocess.run(command, cwd=cluster.folder, env=environment, check=False).returncode
