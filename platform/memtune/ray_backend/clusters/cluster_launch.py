"""`memtune cluster up`, `status`, `dashboard` and `down`: check, run Ray's command, wait for its result.

`ray up` succeeds as soon as the head has started; workers join later or never. A launch here succeeds when
`min_workers` of each node type have joined.

The host keys of a cluster's machines are recorded at the first connection and compared at every later one.
Ray does not verify them (`SSHOptions` in `ray.autoscaler._private.command_runner`) and has no setting for it;
options of its command line precede `~/.ssh/config`. But it starts `ssh` by name, for its own commands and for
rsync. So Ray's commands run with `bin/ssh` of this package first on their PATH, and so does the head, whose
autoscaler connects to the workers of the provider `local`.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from memtune.errors import ClusterError, ConfigurationError, MemtuneError
from memtune.number_format import format_count
from memtune.ray_backend.clusters import cluster_file
from memtune.ray_backend.clusters.cluster_check import SSH_PATH_ON_NODES, check_cluster, find_placeholders
from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding, load_cluster
from memtune.ray_backend.compatibility import ClusterConfigError, complete_cluster_config
from memtune.values import Value

SSH_FOLDER = Path(__file__).parent / "bin"
"""Holds the program `ssh` that verifies host keys."""
KNOWN_HOSTS_ON_HEAD = ".memtune-node/known_hosts"
"""The workers' host keys, below the home of the head's user."""
REFUSED_HOST = re.compile(r"Host key for (\S+) has changed and you have requested strict checking")


class HostKeyError(MemtuneError):
    """A host presented another key than the recorded one; ssh ended before the login."""


def find_known_hosts_file(cluster: ClusterFile) -> Path:
    """The file of host keys that this machine keeps for the cluster."""
    return Path.home() / ".memtune" / f"known_hosts_{re.sub(r'[^A-Za-z0-9_.-]', '_', cluster.name)}"


def find_refused_hosts(output: str) -> list[str]:
    """The hosts that ssh refused because their key changed, in the output of commands that use it."""
    return sorted(set(REFUSED_HOST.findall(output)))


def _refuse_changed_head_key(cluster: ClusterFile, output: str) -> None:
    """Raise HostKeyError where ssh has refused the head for another host key than the recorded one."""
    if refused := find_refused_hosts(output):
        host, file = refused[0], find_known_hosts_file(cluster)
        raise HostKeyError(
            f"{host} presents another host key than the one in {file}: another machine may answer at this "
            "address, so nothing was sent to it; if you reinstalled the host, forget its old key: "
            f"ssh-keygen -R {host} -f {shlex.quote(str(file))}"
        )


def forget_host_keys(cluster: ClusterFile) -> None:
    """Delete the recorded keys of machines that no longer exist.

    Reason: a cloud gives their addresses to new machines, which have other keys.
    """
    if not cluster.is_on_premises and cluster.provider.get("cache_stopped_nodes") is False:
        find_known_hosts_file(cluster).unlink(missing_ok=True)


RAY_COMMAND = (sys.executable, "-m", "ray.scripts.scripts")
SSH_KEY_ON_HEAD = "~/ray_bootstrap_key.pem"
"""Where `ray up` puts the key with which the head connects to its workers."""
SSH_OPTIONS = ("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20", "-o", "BatchMode=yes")
MAX_PARALLEL_CONNECTIONS = 16
"""Workers that the head connects to at one time."""


def build_ray_command(cluster: ClusterFile, name: str, *options: str, yes: bool = False) -> list[str]:
    """A command of Ray's command line about the cluster; with `yes`, it asks nothing."""
    return [*RAY_COMMAND, name, *options, *(["--yes"] if yes else []), str(cluster.path)]


def build_up_command(cluster: ClusterFile, yes: bool, restart: bool = True) -> list[str]:
    """Launch the cluster. `--no-config-cache`: an edited file has effect at once."""
    options = ["--no-config-cache", *([] if restart else ["--no-restart"])]
    return build_ray_command(cluster, "up", *options, yes=yes)


def build_head_command(cluster: ClusterFile, command: str) -> list[str]:
    """Run a shell command on the head of an on-premises cluster by ssh, without Ray."""
    key, proxy = cluster.table("auth").get("ssh_private_key"), cluster.table("auth").get("ssh_proxy_command")
    return [
        "ssh",
        *SSH_OPTIONS,
        *(["-i", str(cluster.folder / os.path.expanduser(key))] if key else []),
        *(["-o", f"ProxyCommand={proxy}"] if proxy else []),
        _get_login(cluster),
        command,
    ]


def build_workers_command(cluster: ClusterFile, command: str) -> list[str]:
    """Run a shell command on each worker of an on-premises cluster, from the head; empty without workers.

    Its exit code is not 0 when the command fails on a worker.
    """
    hosts = cluster.provider.get("worker_ips")
    if not cluster.is_on_premises or not hosts:
        return []
    key = f"-i {SSH_KEY_ON_HEAD}" if cluster.table("auth").get("ssh_private_key") else ""
    to_worker = f"ssh -n {shlex.join(SSH_OPTIONS)} {key} {_get_login(cluster, 'HOST')} {shlex.quote(command)}"
    folder = os.path.dirname(SSH_PATH_ON_NODES)
    script = (
        f"printf '%s\\n' {shlex.join(map(str, hosts))} "
        # xargs skips the remaining workers after an exit code of 255, which ssh has without a connection.
        f"| PATH={folder}:$PATH xargs -P {MAX_PARALLEL_CONNECTIONS} -I HOST "
        f"sh -c {shlex.quote(f'{to_worker} || exit 1')}"
    )
    return build_head_command(cluster, script)


def build_stop_workers_command(cluster: ClusterFile) -> list[str]:
    """Stop Ray on each worker of an on-premises cluster; empty for others.

    Reason: `ray down` does not. A worker without its head ends after a minute and leaves some processes.
    """
    name = "worker_start_ray_commands"
    # A start command may stop Ray too, before a second start.
    starts = cluster.ray_start_commands(name)
    others = (command for command in cluster.commands(name) if command not in starts)
    stop = "; ".join(command for command in others if re.search(r"\bray stop\b", command))
    return build_workers_command(cluster, stop)


def build_ray_environment(cluster: ClusterFile) -> dict[str, str]:
    """The environment of every command here: ssh verifies host keys; on premises, autoscaler version 1.

    Ray's commands run in the folder of the cluster file, and take no modules from it.
    """
    return {
        **os.environ,
        "PATH": f"{SSH_FOLDER}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MEMTUNE_KNOWN_HOSTS": str(find_known_hosts_file(cluster)),
        **({"RAY_UP_enable_autoscaler_v2": "0"} if cluster.is_on_premises else {}),
        "PYTHONSAFEPATH": "1",
    }


def build_forget_command(cluster: ClusterFile, host: str) -> str:
    """On the head: forget a worker's host key, and which hosts Ray has set up.

    Ray keeps the latter in a file that outlives the cluster, and does not copy files to a host named there.
    """
    state = f"{cluster.temporary_folder}/ray/cluster-{cluster.name}.state"
    return f"ssh-keygen -R {host} -f {KNOWN_HOSTS_ON_HEAD}; rm -f {state}"


def _get_login(cluster: ClusterFile, host: str | None = None) -> str:
    """USER@HOST for ssh, by default of the head."""
    head = cluster.provider.get("external_head_ip") or cluster.provider.get("head_ip")
    return f"{cluster.table('auth').get('ssh_user')}@{host or head}"


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

    Raises ConfigurationError for a file with placeholders, HostKeyError when the head's host key changed, and
    ClusterError when the head does not answer.
    """
    _refuse_placeholders(cluster)
    # In /tmp/ray, another user of the head could write the address to which Ray sends the token.
    query = f"RAY_AUTH_MODE=token RAY_TMPDIR={cluster.temporary_folder} ray status"
    command = [*build_ray_command(cluster, "exec"), query]
    done = _run(command, cluster, capture=True)
    _refuse_changed_head_key(cluster, done.stdout + done.stderr)
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


FAILED_HOST = re.compile(r"Terminating the node with id (\S+) and ip \S+ \(launch failed\)")
"""A host on premises on which Ray did not start, in the log of version 1 of its autoscaler.

It does not try the host again until the head is restarted, but reports it as pending.
"""


def _extract_failure_reason(process: subprocess.CompletedProcess[str]) -> str:
    """The last line that the command on the head printed, or else the last one of ssh or Ray."""
    irrelevant = re.compile(r"\s*$|\s*ssh -|.*Command failed:|Shared connection|Warning: Permanently added")
    remote = LOG_LINE_START.split(process.stdout or "", maxsplit=1)[0]
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
    if findings := check_cluster(cluster):
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
    if _run(build_up_command(cluster, yes, restart=not running), cluster).returncode:
        raise ClusterError("ray up failed; the reason is in its output above")
    return _wait_for_nodes(cluster, timeout_seconds, on_progress)


def forward_dashboard(path: Path, port: int) -> None:
    """Forward the head's job server to `port` of this machine, until the user interrupts it.

    Raises ConfigurationError for a file with placeholders, HostKeyError for a head whose key changed, and
    ClusterError when the connection fails.
    """
    cluster = load_cluster(path)
    _refuse_placeholders(cluster)
    _check_head_key(cluster)
    done = _run(build_ray_command(cluster, "dashboard", "--port", str(port)), cluster, capture_errors=True)
    if done.returncode:
        raise ClusterError(
            f"no connection to the job server of {path}: {_extract_failure_reason(done)}; check that the "
            f"cluster is up (memtune cluster status {path}) and that port {port} is free (--port names "
            "another)"
        )


def stop_cluster(path: Path, *, yes: bool) -> None:
    """Stop every node of the cluster; without `yes`, Ray asks first.

    Raises ConfigurationError for a file with placeholders, and without `yes` where Ray cannot ask;
    HostKeyError for a head whose key changed, ClusterError when a node cannot be stopped.
    """
    cluster = load_cluster(path)
    _refuse_placeholders(cluster)
    if not (yes or sys.stdin.isatty()):
        raise ConfigurationError("without a terminal, nobody can confirm that the nodes stop; add --yes")
    _check_head_key(cluster)
    done = _run(build_ray_command(cluster, "down", yes=yes), cluster, capture_errors=True)
    if done.returncode:
        raise ClusterError(
            f"ray down failed: {_extract_failure_reason(done)}; nodes may still run: check the list of your "
            "provider"
        )
    forget_host_keys(cluster)
    if cluster.is_on_premises:
        # `ray down` leaves this file; with it, the next launch would wait 45 s for the head that ended.
        address = f"{cluster.temporary_folder}/ray/ray_current_cluster"
        _run(build_head_command(cluster, f"rm -f {address}"), cluster)
    stop = build_stop_workers_command(cluster)
    if stop and _run(stop, cluster).returncode:
        raise ClusterError(
            "the head is down; a worker named above did not answer: run `ray stop` on it when it is up again"
        )


def format_findings(findings: list[Finding]) -> str:
    """Two lines for each finding: the problem and the fix."""
    return "\n".join(f"{found.where}: {found.problem}\n    fix: {found.fix}" for found in findings)


def _refuse_placeholders(cluster: ClusterFile) -> None:
    """Raise ConfigurationError for a file that still holds a placeholder."""
    if found := [*find_placeholders(cluster)]:
        findings = [
            Finding(rule="edit", where=where, problem=problem, fix=fix) for where, problem, fix in found
        ]
        raise ConfigurationError(f"{cluster.path} is not edited yet\n{format_findings(findings)}")


def _check_head_key(cluster: ClusterFile) -> None:
    """Raise HostKeyError for a head on premises whose key changed.

    Reason: `ray up` would retry the connection for 15 minutes.
    """
    if cluster.is_on_premises:
        done = _run(build_head_command(cluster, "true"), cluster, capture=True)
        _refuse_changed_head_key(cluster, done.stderr)


def _wait_for_nodes(
    cluster: ClusterFile, timeout_seconds: float, on_progress: Callable[[str], None]
) -> ClusterStatus:
    deadline, reported = time.monotonic() + timeout_seconds, ""
    while True:
        try:
            # The autoscaler on the head retries a refused connection to a worker forever.
            asked = build_workers_command(cluster, "true")
            output = _run(asked, cluster, capture=True).stderr if asked else ""
            if refused := find_refused_hosts(output):
                raise HostKeyError(
                    f"{', '.join(refused)}: another host key than the one that the head recorded; another "
                    "machine may answer at this address, so nothing was sent to it; if you reinstalled the "
                    "host, forget its old key and its setup, then stop and launch the cluster: "
                    f"ssh {_get_login(cluster)} {shlex.quote(build_forget_command(cluster, refused[0]))}"
                )
            status = query_status(cluster)
            state = f"{status.node_count} of {format_count(status.min_nodes, 'node')}"
            if status.node_count >= status.min_nodes:
                return status
            failure = _explain_failed_host(cluster)
        except ClusterError as error:
            state, failure = str(error), ""
        if failure:
            raise ClusterError(failure)
        if state != reported:
            on_progress(state)
            reported = state
        if time.monotonic() > deadline:
            raise ClusterError(
                f"after {timeout_seconds:.0f} s: {state}; the head's log has the reason: "
                f"{cluster.temporary_folder}/ray/session_latest/logs/monitor*"
            )
        time.sleep(POLL_SECONDS)


def _explain_failed_host(cluster: ClusterFile) -> str:
    """Why Ray did not start on a host on premises, and the fix; empty while Ray may start on all of them."""
    if not cluster.is_on_premises:
        return ""
    logs = f"{cluster.temporary_folder}/ray/session_latest/logs"

    def read(command: str) -> str:
        return _run(build_head_command(cluster, f"cd {logs}; {command}"), cluster, capture=True).stdout

    failed = FAILED_HOST.search(read("grep 'launch failed' monitor.log"))
    if failed is None:
        return ""
    host = failed[1]
    reason = read(f"grep -B 4 'NodeUpdater: {host}: .* failed' monitor.out | tail -n 5")
    return (
        f"Ray did not start on {host}, and does not try again; repair the host, then stop and launch the "
        f"cluster (memtune cluster down, up); from {logs}/monitor.out of the head:\n"
        + re.sub(r"\x1b\[\d*m|\r", "", reason).rstrip()
    )


def _run(
    command: list[str], cluster: ClusterFile, *, capture: bool = False, capture_errors: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command with its output, and its standard error, on the terminal or captured."""
    return subprocess.run(
        command,
        cwd=cluster.folder,
        env=build_ray_environment(cluster),
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE if capture or capture_errors else None,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
