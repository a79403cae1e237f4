"""Hosts that are there already (`provider.type: local`): what `ray up` needs said about them.

Seen with Ray 2.60: the autoscaler's second version says "Adding 1 node(s)" for ever and never opens a
connection to a worker; the shell over ssh does not know the environment that Ray is in; and each node has to
say by which of its addresses the others reach it.
"""

import re

from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["head_as_worker", "ray_not_found", "second_autoscaler", "unclear_address"]

HEAD, WORKER = "head_start_ray_commands", "worker_start_ray_commands"
FIRST_AUTOSCALER = re.compile(r"\bRAY_enable_autoscaler_v2=0\b")
ADDRESS = re.compile(r"--node-ip-address[= ](\S+)")
FINDS_RAY = re.compile(r"\bPATH=|(^|\s)[~/$]\S*/ray (start|stop)\b")


def second_autoscaler(cluster: ClusterFile) -> list[Finding]:
    """A head that would start the autoscaler's second version, which starts no worker on premises."""
    starts = cluster.starts(HEAD)
    if not cluster.on_premises or (starts and all(FIRST_AUTOSCALER.search(command) for command in starts)):
        return []
    return [
        Finding(
            rule="autoscaler",
            where=HEAD,
            problem="the autoscaler's second version never starts the workers of the provider local",
            fix="write it as: RAY_enable_autoscaler_v2=0 ray start --head ...",
        )
    ]


def ray_not_found(cluster: ClusterFile) -> list[Finding]:
    """Commands that call a `ray` the shell over ssh may not find."""
    if not cluster.on_premises:
        return []
    lost = [
        (name, command)
        for name in (HEAD, WORKER)
        for command in cluster.commands(name)
        if re.search(r"\bray (start|stop)\b", command) and not FINDS_RAY.search(command)
    ]
    return [
        Finding(
            rule="path",
            where=name,
            problem=f"the shell over ssh may not find ray: {command}",
            fix="set PATH in the command, or call ray by its absolute path",
        )
        for name, command in lost
    ]


def unclear_address(cluster: ClusterFile) -> list[Finding]:
    """Starts that do not say the node's address, or a head that says another than `provider.head_ip`."""
    if not cluster.on_premises or "coordinator_address" in cluster.provider:
        return []
    findings = []
    for name in (HEAD, WORKER):
        for command in cluster.starts(name):
            said, head_ip = ADDRESS.search(command), cluster.provider.get("head_ip")
            if said is None:
                problem = "the node picks one of its addresses by itself"
                findings.append(_address(name, problem, "add --node-ip-address=... to ray start"))
            elif name == HEAD and head_ip and said[1] != head_ip:
                problem = f"the head says it is {said[1]}, provider.head_ip is {head_ip}"
                findings.append(_address(name, problem, f"write --node-ip-address={head_ip}"))
    return findings


def head_as_worker(cluster: ClusterFile) -> list[Finding]:
    """The head's address among the workers', which ends `ray up` with a bare assertion."""
    head_ip, workers = cluster.provider.get("head_ip"), cluster.provider.get("worker_ips")
    if not cluster.on_premises or not isinstance(workers, list) or head_ip not in workers:
        return []
    problem = f"{head_ip} is the head, and a host is one of the two"
    return [_address("provider.worker_ips", problem, "remove it from worker_ips, or name another head_ip")]


def _address(where: str, problem: str, fix: str) -> Finding:
    return Finding(rule="address", where=where, problem=problem, fix=fix)
