"""Rules about existing hosts (`provider.type: local`): the additional needs of their commands.

Seen with Ray 2.60: version 2 of the autoscaler logs "Adding 1 node(s)" forever and never connects to a
worker; the shell over ssh does not have Ray's environment on its PATH; a host may pick an address
that others cannot reach; the head does not verify the host keys of its workers.
"""

import re

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding
from memtune.ray_backend.clusters.ray_commands import SSH_PATH_ON_NODES

HEAD_START_COMMANDS, WORKER_START_COMMANDS = "head_start_ray_commands", "worker_start_ray_commands"
AUTOSCALER_V1 = re.compile(r"\bRAY_enable_autoscaler_v2=0\b")
NODE_IP_OPTION = re.compile(r"--node-ip-address[= ](\S+)")
SSH_FOLDER_ON_PATH = re.compile(r"\bPATH=~/\.memtune-node/bin:")
RAY_PATH = re.compile(r"\bPATH=|(^|\s)[~/$]\S*/ray (start|stop)\b")


def find_autoscaler_v2(cluster: ClusterFile) -> list[Finding]:
    """A head that would start version 2 of the autoscaler, which starts no worker on premises."""
    starts = cluster.ray_start_commands(HEAD_START_COMMANDS)
    if not cluster.is_on_premises or (starts and all(AUTOSCALER_V1.search(command) for command in starts)):
        return []
    return [
        Finding(
            rule="autoscaler",
            where=HEAD_START_COMMANDS,
            problem="version 2 of the autoscaler never starts the workers of the provider local",
            fix="write it as: RAY_enable_autoscaler_v2=0 ray start --head ...",
        )
    ]


def find_unresolved_ray_commands(cluster: ClusterFile) -> list[Finding]:
    """Commands with a `ray` that the shell over ssh may not find."""
    if not cluster.is_on_premises:
        return []
    unresolved = [
        (name, command)
        for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS)
        for command in cluster.commands(name)
        if re.search(r"\bray (start|stop)\b", command) and not RAY_PATH.search(command)
    ]
    return [
        Finding(
            rule="path",
            where=name,
            problem=f"the shell over ssh may not find ray: {command}",
            fix="set PATH in the command, or call ray by its absolute path",
        )
        for name, command in unresolved
    ]


def find_ambiguous_addresses(cluster: ClusterFile) -> list[Finding]:
    """A `ray start` without the node's address, or a head with another address than `provider.head_ip`."""
    if not cluster.is_on_premises or "coordinator_address" in cluster.provider:
        return []
    findings = []
    for name in (HEAD_START_COMMANDS, WORKER_START_COMMANDS):
        for command in cluster.ray_start_commands(name):
            option, head_ip = NODE_IP_OPTION.search(command), cluster.provider.get("head_ip")
            if option is None:
                problem = "the node would pick one of its addresses, which others may not reach"
                findings.append(
                    _make_address_finding(name, problem, "add --node-ip-address=... to ray start")
                )
            elif name == HEAD_START_COMMANDS and head_ip and option[1] != head_ip:
                problem = f"the address is {option[1]}, but provider.head_ip is {head_ip}"
                findings.append(_make_address_finding(name, problem, f"write --node-ip-address={head_ip}"))
    return findings


def find_head_among_workers(cluster: ClusterFile) -> list[Finding]:
    """The head's address among the workers': `ray up` ends with an AssertionError."""
    head_ip, workers = cluster.provider.get("head_ip"), cluster.provider.get("worker_ips")
    if not cluster.is_on_premises or not isinstance(workers, list) or head_ip not in workers:
        return []
    problem = f"{head_ip} is the head; a host is either the head or a worker"
    return [
        _make_address_finding(
            "provider.worker_ips", problem, "remove it from worker_ips, or name another head_ip"
        )
    ]


def find_unverified_workers(cluster: ClusterFile) -> list[Finding]:
    """A head whose autoscaler would connect to workers without verifying their host keys."""
    starts = cluster.ray_start_commands(HEAD_START_COMMANDS)
    problem = "the head would send the token and mounted passwords to any host that answers as a worker"
    if not cluster.is_on_premises:
        return []
    if SSH_PATH_ON_NODES not in cluster.mounts:
        source = "platform/memtune/ray_backend/clusters/bin/ssh"
        return [_make_host_key_finding("file_mounts", problem, f'add: "{SSH_PATH_ON_NODES}": "{source}"')]
    if not all(SSH_FOLDER_ON_PATH.search(command) for command in starts):
        fix = "write it as: PATH=~/.memtune-node/bin:... ray start --head ..."
        return [_make_host_key_finding(HEAD_START_COMMANDS, problem, fix)]
    return []


def _make_host_key_finding(where: str, problem: str, fix: str) -> Finding:
    return Finding(rule="host keys", where=where, problem=problem, fix=fix)


def _make_address_finding(where: str, problem: str, fix: str) -> Finding:
    return Finding(rule="address", where=where, problem=problem, fix=fix)
