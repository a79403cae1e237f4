"""Who gets in: the user that the file names, over ssh, and to Ray whoever has the token.

Ray's nodes refuse each other unless all of them have the head's token. Since Ray 2.60 `ray start --head`
turns token authentication on and, where there is none, makes a token that only the head knows: no worker
could join. So the client's token is a file mount on every node, and each start says that it is to be used.
"""

import re

from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["TOKEN_ON_NODES", "missing_token", "no_ssh_user", "open_dashboard", "token_in_the_open"]

TOKEN_ON_NODES = "~/.ray/auth_token"
MODE = re.compile(r"\bRAY_AUTH_MODE=token\b")
DASHBOARD = re.compile(r"--dashboard-host[= ](\S+)")
HERE_ALONE = ("127.0.0.1", "localhost", "::1")
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


def no_ssh_user(cluster: ClusterFile) -> list[Finding]:
    """A file that does not say as whom to log in: Ray ends with a KeyError when it first connects."""
    if cluster.table("auth").get("ssh_user"):
        return []
    return [
        Finding(
            rule="ssh",
            where="auth.ssh_user",
            problem="nothing says as whom to log in on the nodes",
            fix="write ssh_user: NAME under auth",
        )
    ]


def open_dashboard(cluster: ClusterFile) -> list[Finding]:
    """Heads whose job server listens on the network: over plain http, the token in each request."""
    name = "head_start_ray_commands"
    hosts = [found[1] for command in cluster.starts(name) if (found := DASHBOARD.search(command))]
    return [
        Finding(
            rule="dashboard",
            where=name,
            problem=f"the job server would listen on {host}, where others read the token on its way",
            fix="write --dashboard-host=127.0.0.1, and reach it through `ray dashboard`",
        )
        for host in hosts
        if host not in HERE_ALONE
    ]
