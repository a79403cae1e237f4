"""The command lines of Ray and ssh that launch, query and stop a cluster, and the environment they run in.

The host keys of a cluster's machines are recorded at the first connection and compared at every later one.
Ray does not verify them (`SSHOptions` in `ray.autoscaler._private.command_runner`) and has no setting for it;
options of its command line precede `~/.ssh/config`. But it starts `ssh` by name, for its own commands and for
rsync. So Ray's commands run with `bin/ssh` of this package first on their PATH, and so does the head, whose
autoscaler connects to the workers of the provider `local`.
"""

import os
import re
import shlex
import sys
from pathlib import Path

from memtune.errors import MemtuneError
from memtune.ray_backend.clusters.cluster_file import ClusterFile

SSH_FOLDER = Path(__file__).parent / "bin"
"""Holds the program `ssh` that verifies host keys."""
SSH_PATH_ON_NODES = "~/.memtune-node/bin/ssh"
"""Where a cluster file mounts that program."""
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
    return {
        **os.environ,
        "PATH": f"{SSH_FOLDER}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MEMTUNE_KNOWN_HOSTS": str(find_known_hosts_file(cluster)),
        **({"RAY_UP_enable_autoscaler_v2": "0"} if cluster.is_on_premises else {}),
        "PYTHONSAFEPATH": "1",
    }


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
