"""Host keys of real hosts: a host whose key changed receives nothing from Ray or memtune."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtune.ray_backend.clusters import load_cluster
from memtune.ray_backend.clusters.cluster_launch import build_forget_command
from tests.cluster.drivers import read_files
from tests.cluster.hosts import Host
from tests.cluster.on_premises_cluster import CLUSTER_FILE, OnPremisesCluster, boot_cluster
from tests.cluster.poll import poll_until

pytestmark = [pytest.mark.cluster, pytest.mark.long]

PASSWORD = secrets.token_hex(24)
LOGIN = "Accepted publickey"
MAX_REFUSAL_SECONDS = 240
"""Less than the 900 s for which `ray up` retries to connect."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnPremisesCluster]:
    """A cluster with a password among its file mounts, launched once, so that every host key is recorded.

    The module has hosts of its own, because it replaces them by other machines.
    """
    with boot_cluster(tmp_path_factory.mktemp("hosts")) as cluster:
        password = cluster.home / ".pgpass"
        password.touch(mode=0o600)
        password.write_text(PASSWORD)
        file = cluster.project / CLUSTER_FILE
        file.write_text(file.read_text().replace('# "~/.pgpass"', '"~/.pgpass"'))
        cluster.up()
        yield cluster


def list_secrets(cluster: OnPremisesCluster, host: Host) -> list[Path]:
    """The files in a host's home and /tmp that contain the token or the password."""
    secret_values = {PASSWORD.encode(), (cluster.home / ".ray" / "auth_token").read_bytes().strip()}
    contents = read_files(host.home) | read_files(host.tmp)
    return [path for path, content in contents.items() if any(value in content for value in secret_values)]


def replace_machine(cluster: OnPremisesCluster, host: Host) -> int:
    """Put another machine at a host's address, without secrets. Returns the length of the earlier log."""
    host.kill()
    for path in list_secrets(cluster, host):
        path.unlink()
    host.replace_host_key()
    length = len(host.read_console())
    host.start()
    return length


def is_reachable(source: Host, target: Host) -> bool:
    """Whether one host reaches another's ssh server: a host caches an old network address for seconds."""
    command = f"timeout 1 bash -c ': < /dev/tcp/{target.address}/22' 2> /dev/null && echo open || true"
    return bool(source.run(command))


def is_reachable_from_client(cluster: OnPremisesCluster, target: Host) -> bool:
    """Whether this machine reaches a host's ssh server."""
    probe = f"timeout 1 bash -c ': < /dev/tcp/{target.address}/22' 2> /dev/null && echo open || true"
    return "open" in cluster.run("bash", "-c", probe)


def test_the_first_launch_records_the_key_of_every_host(cluster: OnPremisesCluster) -> None:
    known_by_client = (cluster.home / ".memtune" / "known_hosts_memtune").read_text()
    known_by_head = (cluster.head.home / ".memtune-node" / "known_hosts").read_text()
    assert cluster.head.address in known_by_client
    assert all(worker.address in known_by_head for worker in cluster.workers)
    assert list_secrets(cluster, cluster.workers[0]), "a verified worker has the mounted files"


def test_a_worker_whose_key_changed_is_refused_before_anything_is_sent(cluster: OnPremisesCluster) -> None:
    worker = cluster.workers[0]
    length = replace_machine(cluster, worker)
    poll_until(lambda: is_reachable(cluster.head, worker), "a connection from the head to the new machine")
    begin = time.monotonic()
    output = cluster.run("memtune", "cluster", "up", CLUSTER_FILE, "--yes", expected_exit_code=1)
    assert time.monotonic() - begin < MAX_REFUSAL_SECONDS
    assert f"error: {worker.address}: another host key than the one that the head recorded" in output
    assert list_secrets(cluster, worker) == []
    assert LOGIN not in worker.read_console()[length:]


def test_a_reinstalled_worker_joins_once_its_old_key_is_forgotten(cluster: OnPremisesCluster) -> None:
    worker = cluster.workers[0]
    replace_machine(cluster, worker)
    poll_until(lambda: is_reachable(cluster.head, worker), "a connection from the head to the new machine")
    forget = build_forget_command(load_cluster(cluster.project / CLUSTER_FILE), worker.address)
    cluster.head.run(f"cd; {forget}")
    cluster.down()
    cluster.up()
    assert "the cluster is up with 2 nodes" in cluster.launch_output


@pytest.mark.parametrize("command", ["up --yes", "status", "dashboard", "down --yes"])
def test_a_head_whose_key_changed_is_refused_before_anything_is_sent(
    command: str, cluster: OnPremisesCluster
) -> None:
    name, *options = command.split()
    length = replace_machine(cluster, cluster.head)
    poll_until(
        lambda: is_reachable_from_client(cluster, cluster.head),
        "a connection from this machine to the new head",
    )
    output = cluster.run("memtune", "cluster", name, CLUSTER_FILE, *options, expected_exit_code=1)
    assert f"error: {cluster.head.address} presents another host key" in output
    assert "ssh-keygen -R" in output
    assert list_secrets(cluster, cluster.head) == []
    assert LOGIN not in cluster.head.read_console()[length:]
