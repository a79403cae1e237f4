"""The command lines of Ray and ssh that launch, query and stop a cluster, and the environment they run in."""

import os
import re
import shlex
import sys

from memtune.ray_backend.clusters.cluster_file import ClusterFile
from memtune.ray_backend.clusters.host_keys import (
    KNOWN_HOSTS_ON_HEAD,
    SSH_PATH_ON_NODES,
    HostKeyError,
    build_ssh_environment,
    find_known_hosts_file,
)

RAY_COMMAND = (sys.executable, "-m", "ray.scripts.scripts")
SSH_KEY_ON_HEAD = "~/ray_bootstrap_key.pem"
"""Where `ray up` puts the key with which the head connects to its workers."""
SSH_OPTIONS = ("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20", "-o", "BatchMode=yes")
MAX_PARALLEL_CONNECTIONS = 16
"""Workers that the head connects to at one time."""


def build_up_command(cluster: ClusterFile, yes: bool, restart: bool = True) -> list[str]:
    """Launch the cluster. `--no-config-cache`: an edited file has effect at once."""
    options = [*(["--yes"] if yes else []), *([] if restart else ["--no-restart"])]
    return [*RAY_COMMAND, "up", "--no-config-cache", *options, str(cluster.path)]


def build_down_command(cluster: ClusterFile, yes: bool) -> list[str]:
    """Stop every node; with the provider `local`, Ray on the head alone."""
    return [*RAY_COMMAND, "down", *(["--yes"] if yes else []), str(cluster.path)]


def build_status_command(cluster: ClusterFile) -> list[str]:
    """Run `ray status` on the head."""
    return [*RAY_COMMAND, "exec", str(cluster.path), "RAY_AUTH_MODE=token ray status"]


def build_dashboard_command(cluster: ClusterFile, port: int) -> list[str]:
    """Forward the head's job server to `port` of this machine."""
    return [*RAY_COMMAND, "dashboard", "--port", str(port), str(cluster.path)]


def build_head_command(cluster: ClusterFile, command: str) -> list[str]:
    """Run a shell command on the head of an on-premises cluster by ssh, without Ray."""
    key, proxy = cluster.table("auth").get("ssh_private_key"), cluster.table("auth").get("ssh_proxy_command")
    return [
        "ssh",
        *SSH_OPTIONS,
        *(["-i", str(cluster.folder / os.path.expanduser(key))] if key else []),
        *(["-o", f"ProxyCommand={proxy}"] if proxy else []),
        f"{_get_ssh_user(cluster)}@{_get_head_address(cluster)}",
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
    to_worker = f"ssh -n {shlex.join(SSH_OPTIONS)} {key} {_get_ssh_user(cluster)}@HOST {shlex.quote(command)}"
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
    commands = cluster.commands("worker_start_ray_commands")
    stop = "; ".join(command for command in commands if re.search(r"\bray stop\b", command))
    return build_workers_command(cluster, stop)


def build_ray_environment(cluster: ClusterFile) -> dict[str, str]:
    """The environment of every command here: ssh verifies host keys; on premises, autoscaler version 1.

    Ray's commands run in the folder of the cluster file, and take no modules from it.
    """
    version = {"RAY_UP_enable_autoscaler_v2": "0"} if cluster.is_on_premises else {}
    return {**os.environ, **build_ssh_environment(cluster), **version, "PYTHONSAFEPATH": "1"}


def describe_changed_head_key(cluster: ClusterFile, host: str) -> HostKeyError:
    """The error for a head that presents another host key than the recorded one."""
    file = find_known_hosts_file(cluster)
    return HostKeyError(
        f"{host} presents another host key than the one in {file}: another machine may answer at this "
        "address, so nothing was sent to it; if you reinstalled the host, forget its old key: "
        f"ssh-keygen -R {host} -f {shlex.quote(str(file))}"
    )


def build_forget_command(cluster: ClusterFile, host: str) -> str:
    """On the head: forget a worker's host key, and which hosts Ray has set up.

    Ray keeps the latter in a file that outlives the cluster, and does not copy files to a host named there.
    """
    return f"ssh-keygen -R {host} -f {KNOWN_HOSTS_ON_HEAD}; rm -f /tmp/ray/cluster-{cluster.name}.state"


def describe_changed_worker_key(cluster: ClusterFile, hosts: list[str]) -> HostKeyError:
    """The error for workers that present other host keys than those that the head recorded."""
    login = f"{_get_ssh_user(cluster)}@{_get_head_address(cluster)}"
    return HostKeyError(
        f"{', '.join(hosts)}: another host key than the one that the head recorded; another machine may "
        "answer at this address, so nothing was sent to it; if you reinstalled the host, forget its old key "
        "and its setup, then stop and launch the cluster: "
        f"ssh {login} {shlex.quote(build_forget_command(cluster, hosts[0]))}"
    )


def _get_ssh_user(cluster: ClusterFile) -> str:
    return str(cluster.table("auth").get("ssh_user"))


def _get_head_address(cluster: ClusterFile) -> str:
    return str(cluster.provider.get("external_head_ip") or cluster.provider.get("head_ip"))
