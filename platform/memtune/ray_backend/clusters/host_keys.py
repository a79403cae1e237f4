"""The host keys of a cluster's machines: recorded at the first connection, compared at every later one.

Ray does not verify host keys (`SSHOptions` in `ray.autoscaler._private.command_runner`) and has no
setting for it; options of its command line precede `~/.ssh/config`. But it starts `ssh` by name, for its own
commands and for rsync. So Ray's commands run with `bin/ssh` of this package first on their PATH, and so does
the head, whose autoscaler connects to the workers of the provider `local`.
"""

import os
import re
from pathlib import Path

from memtune.errors import ClusterError
from memtune.ray_backend.clusters.cluster_file import ClusterFile

SSH_FOLDER = Path(__file__).parent / "bin"
"""Holds the program `ssh` that verifies host keys."""
SSH_PATH_ON_NODES = "~/.memtune-node/bin/ssh"
"""Where a cluster file mounts that program."""
KNOWN_HOSTS_ON_HEAD = ".memtune-node/known_hosts"
"""The workers' host keys, below the home of the head's user."""
REFUSED_HOST = re.compile(r"Host key for (\S+) has changed and you have requested strict checking")


class HostKeyError(ClusterError):
    """A host presented another key than the recorded one; ssh ended before the login."""


def find_known_hosts_file(cluster: ClusterFile) -> Path:
    """The file of host keys that this machine keeps for the cluster."""
    return Path.home() / ".memtune" / f"known_hosts_{re.sub(r'[^A-Za-z0-9_.-]', '_', cluster.name)}"


def build_ssh_environment(cluster: ClusterFile) -> dict[str, str]:
    """Variables with which `ssh` verifies host keys, for commands that find it on PATH."""
    return {
        "PATH": f"{SSH_FOLDER}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "MEMTUNE_KNOWN_HOSTS": str(find_known_hosts_file(cluster)),
    }


def find_refused_hosts(output: str) -> list[str]:
    """The hosts that ssh refused because their key changed, in the output of commands that use it."""
    return sorted(set(REFUSED_HOST.findall(output)))


def forget_host_keys(cluster: ClusterFile) -> None:
    """Delete the recorded keys of machines that no longer exist.

    Reason: a cloud gives their addresses to new machines, which have other keys.
    """
    if not cluster.is_on_premises and cluster.provider.get("cache_stopped_nodes") is False:
        find_known_hosts_file(cluster).unlink(missing_ok=True)
