"""The token of the cluster: Ray's nodes refuse each other unless all of them have the head's.

Since Ray 2.60 `ray start --head` turns token authentication on and, where there is none, makes a token that
only the head knows: no worker could join. So the client's token is a file mount on every node, and each start
says that it is to be used.
"""

import re

from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["TOKEN_ON_NODES", "missing_token", "token_in_the_open"]

TOKEN_ON_NODES = "~/.ray/auth_token"
MODE = re.compile(r"\bRAY_AUTH_MODE=token\b")
IN_THE_OPEN = re.compile(r"\bRAY_AUTH_TOKEN=")


def missing_token(cluster: ClusterFile) -> list[Finding]:
    """The token's file mount, and the mode in the head's and the workers' start commands."""
    findings = []
    remotes = [remote for remote in cluster.mounts if remote.endswith(".ray/auth_token")]
    if not remotes:
        findings.append(
            Finding(
                rule="token",
                where="file_mounts",
                problem="no node but the head would have the cluster's token: no worker could join",
                fix=f'add to file_mounts: "{TOKEN_ON_NODES}": "{TOKEN_ON_NODES}"',
            )
        )
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = cluster.starts(name)
        if not starts or not all(MODE.search(command) for command in starts):
            findings.append(
                Finding(
                    rule="token",
                    where=name,
                    problem="`ray start` without RAY_AUTH_MODE=token: the node is refused, or asks for none",
                    fix="write it as: RAY_AUTH_MODE=token ray start ...",
                )
            )
    return findings


def token_in_the_open(cluster: ClusterFile) -> list[Finding]:
    """Commands that hold the token itself, which every user of the host reads in `ps`."""
    names = [name for name in cluster.config if str(name).endswith("_commands")]
    return [
        Finding(
            rule="token",
            where=name,
            problem="the token stands on a command line, where every user of the host reads it",
            fix=f"remove RAY_AUTH_TOKEN=...; the token comes as the file {TOKEN_ON_NODES}",
        )
        for name in names
        if any(IN_THE_OPEN.search(command) for command in cluster.commands(name))
    ]
