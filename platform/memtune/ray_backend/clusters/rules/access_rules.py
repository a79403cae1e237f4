"""Rules about access: the ssh user, the token of Ray, and the address of the job server.

Since version 2.60 `ray start --head` turns token authentication on. Without a token file it creates a token
that only the head has, and no worker can join. So a cluster file mounts the client's token on every node, and
each `ray start` has RAY_AUTH_MODE=token.
"""

import re

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding

TOKEN_PATH_ON_NODES = "~/.ray/auth_token"
TOKEN_MODE = re.compile(r"\bRAY_AUTH_MODE=token\b")
DASHBOARD_HOST = re.compile(r"--dashboard-host[= ](\S+)")
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
TOKEN_IN_COMMAND = re.compile(r"\bRAY_AUTH_TOKEN=")


def find_missing_token(cluster: ClusterFile) -> list[Finding]:
    """A missing file mount of the token, or a `ray start` without RAY_AUTH_MODE=token."""
    findings = []
    remotes = [remote for remote in cluster.mounts if remote.endswith(".ray/auth_token")]
    if not remotes:
        findings.append(
            Finding(
                rule="token",
                where="file_mounts",
                problem="only the head would have the cluster's token: no worker could join",
                fix=f'add to file_mounts: "{TOKEN_PATH_ON_NODES}": "{TOKEN_PATH_ON_NODES}"',
            )
        )
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = cluster.ray_start_commands(name)
        if not starts or not all(TOKEN_MODE.search(command) for command in starts):
            findings.append(
                Finding(
                    rule="token",
                    where=name,
                    problem="`ray start` without RAY_AUTH_MODE=token",
                    fix="write it as: RAY_AUTH_MODE=token ray start ...",
                )
            )
    return findings


def find_exposed_token(cluster: ClusterFile) -> list[Finding]:
    """Commands that contain the token: every user of the host can read them with `ps`."""
    names = [name for name in cluster.config if str(name).endswith("_commands")]
    return [
        Finding(
            rule="token",
            where=name,
            problem="the token is on a command line, where every user of the host can read it",
            fix=f"remove RAY_AUTH_TOKEN=...; nodes read the token from {TOKEN_PATH_ON_NODES}",
        )
        for name in names
        if any(TOKEN_IN_COMMAND.search(command) for command in cluster.commands(name))
    ]


def find_missing_ssh_user(cluster: ClusterFile) -> list[Finding]:
    """A missing `auth.ssh_user`: Ray ends with a KeyError at its first connection."""
    if cluster.table("auth").get("ssh_user"):
        return []
    return [
        Finding(
            rule="ssh",
            where="auth.ssh_user",
            problem="the user of the nodes is missing",
            fix="write ssh_user: NAME under auth",
        )
    ]


def find_exposed_dashboard(cluster: ClusterFile) -> list[Finding]:
    """A job server that listens on the network: each request carries the token over plain http."""
    name = "head_start_ray_commands"
    hosts = [
        found[1] for command in cluster.ray_start_commands(name) if (found := DASHBOARD_HOST.search(command))
    ]
    return [
        Finding(
            rule="dashboard",
            where=name,
            problem=f"the job server would listen on {host}; its requests carry the token over plain http",
            fix="write --dashboard-host=127.0.0.1, and connect with `memtune cluster dashboard`",
        )
        for host in hosts
        if host not in LOOPBACK_HOSTS
    ]
