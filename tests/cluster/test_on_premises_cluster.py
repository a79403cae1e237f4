"""A cluster on two hosts: status, jobs and tear-down as in docs/cluster/on_premises.md."""

import json
from pathlib import Path

import pytest

from memtune.trial_state import TrialState
from tests.cluster.drivers import read_outcomes, start_ray_instance
from tests.cluster.hosts import SHARED_MOUNT
from tests.cluster.on_premises_cluster import CLUSTER_FILE, TIMEOUT_SECONDS, OnPremisesCluster
from tests.cluster.poll import poll_until

pytestmark = pytest.mark.cluster

STUDY = """question = "Does a second layer help?"

corpus = "grammar"
spaces = ["lstm"]

[model]
width = 8
dropout = 0.0

[training]
tokens = 20_000
report_every = 10_000

[early_stopping]
kind = "none"

[budget]
trials = 2
"""


def test_the_file_is_ready_once_its_placeholders_are_replaced(idle_cluster: OnPremisesCluster) -> None:
    assert idle_cluster.run("memtune", "cluster", "check", CLUSTER_FILE) == f"{CLUSTER_FILE}: no faults\n"


def test_a_launch_waits_until_every_node_has_joined(cluster: OnPremisesCluster) -> None:
    assert "the cluster is up with 2 nodes" in cluster.launch_output
    status = json.loads(cluster.run("memtune", "cluster", "status", CLUSTER_FILE, "--json"))
    assert status == {"nodes": {"local.cluster.node": 2}, "min_nodes": 2}


def test_another_user_of_a_host_cannot_write_to_the_folder_of_ray(cluster: OnPremisesCluster) -> None:
    for host in cluster.hosts.hosts:
        assert host.run("ls /tmp/memtune-root/ray/session_latest/runtime_resources")
        writable = (
            "setpriv --reuid=nobody --clear-groups find /tmp -writable -not -type l 2> /dev/null || true"
        )
        assert host.run(writable).split() == ["/tmp"]


def test_a_second_launch_interrupts_nothing(cluster: OnPremisesCluster) -> None:
    head = cluster.head.find_processes("gcs_server")
    assert "its jobs continue" in cluster.run("memtune", "cluster", "up", CLUSTER_FILE, "--yes")
    assert cluster.head.find_processes("gcs_server") == head


def test_a_client_without_the_token_is_refused(cluster: OnPremisesCluster, tmp_path: Path) -> None:
    command = ("ray", "status", "--address", f"{cluster.head.address}:6379")
    assert "InvalidAuthToken" in cluster.run(*command, expected_exit_code=1)
    (tmp_path / "token").write_text("0" * 64)
    another = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    assert "InvalidAuthToken" in cluster.run(*command, expected_exit_code=1, variables=another)
    assert "Active:" in cluster.run(*command, variables={"RAY_AUTH_MODE": "token"})


def test_no_command_line_on_a_host_contains_the_token(cluster: OnPremisesCluster) -> None:
    token = (cluster.home / ".ray" / "auth_token").read_text()
    for host in cluster.hosts.hosts:
        assert host.find_processes("raylet")
        assert not host.find_processes(token)


def test_a_submitted_study_on_the_embedded_corpus_registers_a_champion(
    cluster: OnPremisesCluster,
) -> None:
    cluster.run("memtune", "corpus", "demo", "--store", str(cluster.hosts.shared / "corpora"))
    study = cluster.project / "jobs" / "studies" / "layers.toml"
    study.write_text(STUDY)
    with cluster.forward_dashboard() as address, cluster.submit(address, "jobs/studies/layers.toml") as job:
        output = job.wait_for_success(TIMEOUT_SECONDS)
    assert "new champion models:/grammar@champion" in output
    assert [outcome.state for outcome in read_outcomes(study, cluster.settings)] == [TrialState.COMPLETE] * 2
    checkpoints = cluster.head.run(f"ls {SHARED_MOUNT}/studies/layers-*/checkpoints")
    assert len(checkpoints.split()) == 2


@pytest.mark.long
def test_a_launch_names_the_host_on_which_ray_does_not_start(idle_cluster: OnPremisesCluster) -> None:
    if idle_cluster.launch_output:
        idle_cluster.down()
    worker = idle_cluster.workers[0]
    uv = worker.home / ".local" / "bin" / "uv"
    working = uv.read_text()
    uv.write_text("#!/bin/sh\necho no space left; exit 3\n")
    output = idle_cluster.run("memtune", "cluster", "up", CLUSTER_FILE, "--yes", expected_exit_code=1)
    assert f"error: Ray did not start on {worker.address}" in output
    assert "no space left" in output.partition("error: ")[2]
    uv.write_text(working)
    idle_cluster.down()


def test_a_tear_down_ends_only_the_processes_of_its_cluster(cluster: OnPremisesCluster) -> None:
    with start_ray_instance(cores=1) as other:
        cluster.down()
        hosts = cluster.hosts.hosts
        poll_until(lambda: not any(host.find_processes("ray") for host in hosts), "the end of Ray")
        command = ["ray", "status", "--address", other.environment["RAY_ADDRESS"]]
        assert "Active:" in cluster.run(*command, variables=other.environment)
