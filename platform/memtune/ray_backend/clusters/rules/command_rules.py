"""Rules about the commands of a cluster file: Ray's token, the job server, and what existing hosts need.

Since version 2.60 `ray start --head` turns token authentication on. Without a token file it creates a token
that only the head has, and no worker can join. So a cluster file mounts the client's token on every node, and
each `ray start` has RAY_AUTH_MODE=token.

On existing hosts (`provider.type: local`), seen with Ray 2.60: version 2 of the autoscaler logs "Adding 1
node(s)" forever and never connects to a worker; the shell over ssh does not have Ray's environment on its
PATH; a host may pick an address that others cannot reach; the head does not verify the host keys of its
workers.
"""

import re
from collections.abc import Iterator

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Problem
from memtune.ray_backend.clusters.ray_commands import SSH_PATH_ON_NODES

TOKEN_PATH_ON_NODES = "~/.ray/auth_token"
TOKEN_MODE = re.compile(r"\bRAY_AUTH_MODE=token\b")
TOKEN_IN_COMMAND = re.compile(r"\bRAY_AUTH_TOKEN=")
DASHBOARD_HOST = re.compile(r"--dashboard-host[= ](\S+)")
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
HEAD_START_COMMANDS, WORKER_START_COMMANDS = "head_start_ray_commands", "worker_start_ray_commands"
AUTOSCALER_V1 = re.compile(r"\bRAY_enable_autoscaler_v2=0\b")
NODE_IP_OPTION = re.compile(r"--node-ip-address[= ](\S+)")
SSH_FOLDER_ON_PATH = re.compile(r"\bPATH=~/\.memtune-node/bin:")
RAY_PATH = re.compile(r"\bPATH=|(^|\s)[~/$]\S*/ray (start|stop)\b")


def find_missing_token(cluster: ClusterFile) -> Iterator[Problem]:
    """A missing file mount of the token, or a `ray start` without RAY_AUTH_MODE=token."""
    if not any(remote.endswith(".ray/auth_token") for remote in cluster.mounts):
        problem = "only the head would have the cluster's token: no worker could join"
        fix = f'add to file_mounts: "{TOKEN_PATH_ON_NODES}": "{TOKEN_PATH_ON_NODES}"'
        yield "file_mounts", problem, fix
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS):
        starts = cluster.ray_start_commands(name)
        if not starts or not all(TOKEN_MODE.search(command) for command in starts):
            fix = "write it as: RAY_AUTH_MODE=token ray start ..."
            yield name, "`ray start` without RAY_AUTH_MODE=token", fix


def find_exposed_token(cluster: ClusterFile) -> Iterator[Problem]:
    """Commands that contain the token: every user of the host can read them with `ps`."""
    problem = "the token is on a command line, where every user of the host can read it"
    fix = f"remove RAY_AUTH_TOKEN=...; nodes read the token from {TOKEN_PATH_ON_NODES}"
    for name in [name for name in cluster.config if str(name).endswith("_commands")]:
        if any(TOKEN_IN_COMMAND.search(command) for command in cluster.commands(name)):
            yield name, problem, fix


def find_missing_ssh_user(cluster: ClusterFile) -> Iterator[Problem]:
    """A missing `auth.ssh_user`: Ray ends with a KeyError at its first connection."""
    if not cluster.table("auth").get("ssh_user"):
        yield "auth.ssh_user", "the user of the nodes is missing", "write ssh_user: NAME under auth"


def find_exposed_dashboard(cluster: ClusterFile) -> Iterator[Problem]:
    """A job server that listens on the network: each request carries the token over plain http."""
    fix = "write --dashboard-host=127.0.0.1, and connect with `memtune cluster dashboard`"
    for command in cluster.ray_start_commands(HEAD_START_COMMANDS):
        host = DASHBOARD_HOST.search(command)
        if host and host[1] not in LOOPBACK_HOSTS:
            problem = (
                f"the job server would listen on {host[1]}; its requests carry the token over plain http"
            )
            yield HEAD_START_COMMANDS, problem, fix


def find_autoscaler_v2(cluster: ClusterFile) -> Iterator[Problem]:
    """A head that would start version 2 of the autoscaler, which starts no worker on premises."""
    starts = cluster.ray_start_commands(HEAD_START_COMMANDS)
    if cluster.is_on_premises and not (starts and all(AUTOSCALER_V1.search(command) for command in starts)):
        problem = "version 2 of the autoscaler never starts the workers of the provider local"
        yield HEAD_START_COMMANDS, problem, "write it as: RAY_enable_autoscaler_v2=0 ray start --head ..."


def find_unresolved_ray_commands(cluster: ClusterFile) -> Iterator[Problem]:
    """Commands with a `ray` that the shell over ssh may not find."""
    fix = "set PATH in the command, or call ray by its absolute path"
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS) if cluster.is_on_premises else ():
        for command in cluster.commands(name):
            if re.search(r"\bray (start|stop)\b", command) and not RAY_PATH.search(command):
                yield name, f"the shell over ssh may not find ray: {command}", fix


def find_ambiguous_addresses(cluster: ClusterFile) -> Iterator[Problem]:
    """A `ray start` without the node's address, or a head with another address than `provider.head_ip`."""
    if not cluster.is_on_premises or "coordinator_address" in cluster.provider:
        return
    head_ip = cluster.provider.get("head_ip")
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS):
        for command in cluster.ray_start_commands(name):
            option = NODE_IP_OPTION.search(command)
            if option is None:
                problem = "the node would pick one of its addresses, which others may not reach"
                yield name, problem, "add --node-ip-address=... to ray start"
            elif name == HEAD_START_COMMANDS and head_ip and option[1] != head_ip:
                problem = f"the address is {option[1]}, but provider.head_ip is {head_ip}"
                yield name, problem, f"write --node-ip-address={head_ip}"


def find_head_among_workers(cluster: ClusterFile) -> Iterator[Problem]:
    """The head's address among the workers': `ray up` ends with an AssertionError."""
    head_ip, workers = cluster.provider.get("head_ip"), cluster.provider.get("worker_ips")
    if cluster.is_on_premises and isinstance(workers, list) and head_ip in workers:
        problem = f"{head_ip} is the head; a host is either the head or a worker"
        yield "provider.worker_ips", problem, "remove it from worker_ips, or name another head_ip"


def find_unverified_workers(cluster: ClusterFile) -> Iterator[Problem]:
    """A head whose autoscaler would connect to workers without verifying their host keys."""
    starts = cluster.ray_start_commands(HEAD_START_COMMANDS)
    problem = "the head would send the token and mounted passwords to any host that answers as a worker"
    if cluster.is_on_premises and SSH_PATH_ON_NODES not in cluster.mounts:
        source = "platform/memtune/ray_backend/clusters/bin/ssh"
        yield "file_mounts", problem, f'add: "{SSH_PATH_ON_NODES}": "{source}"'
    elif cluster.is_on_premises and not all(SSH_FOLDER_ON_PATH.search(command) for command in starts):
        fix = "write it as: PATH=~/.memtune-node/bin:... ray start --head ..."
        yield HEAD_START_COMMANDS, problem, fix
