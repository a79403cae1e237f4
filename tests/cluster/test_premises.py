"""A cluster on hosts of its own: watched, used and ended as docs/cluster.md says."""

import json
from pathlib import Path

import pytest

from tests.cluster.drivers import outcomes, ray_instance
from tests.cluster.hosts import SHARED
from tests.cluster.premises import FILE, PATIENCE, Premises

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

[budget]
trials = 2
"""


def test_the_file_is_ready_once_its_placeholders_are_replaced(premises: Premises) -> None:
    assert premises.run("memtune", "cluster", "check", FILE) == f"{FILE}: nothing wrong\n"


def test_a_launch_waits_until_every_node_is_there(cluster: Premises) -> None:
    assert "the cluster is up with 2 nodes" in cluster.launch
    said = json.loads(cluster.run("memtune", "cluster", "status", FILE, "--json"))
    assert said == {"nodes": {"local.cluster.node": 2}, "least": 2}


def test_a_second_launch_interrupts_nothing(cluster: Premises) -> None:
    head = cluster.head.processes("gcs_server")
    assert "what runs on it goes on" in cluster.run("memtune", "cluster", "up", FILE, "--yes")
    assert cluster.head.processes("gcs_server") == head


def test_who_has_no_token_is_refused(cluster: Premises, tmp_path: Path) -> None:
    command = ("ray", "status", "--address", f"{cluster.head.address}:6379")
    assert "InvalidAuthToken" in cluster.run(*command, code=1)
    (tmp_path / "token").write_text("0" * 64)
    another = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    assert "InvalidAuthToken" in cluster.run(*command, code=1, **another)
    assert "Active:" in cluster.run(*command, RAY_AUTH_MODE="token")


def test_no_command_line_on_a_host_holds_the_token(cluster: Premises) -> None:
    token = (cluster.home / ".ray" / "auth_token").read_text()
    for host in cluster.hosts.hosts:
        assert host.processes("raylet")
        assert not host.processes(token)


def test_a_study_on_the_embedded_corpus_is_submitted_and_crowns_a_champion(cluster: Premises) -> None:
    cluster.run("memtune", "corpus", "demo", "--store", str(cluster.hosts.shared / "corpora"))
    study = cluster.project / "jobs" / "studies" / "layers.toml"
    study.write_text(STUDY)
    with cluster.dashboard() as address, cluster.submit(address, "jobs/studies/layers.toml") as job:
        said = job.succeed(PATIENCE)
    assert "new champion models:/grammar@champion" in said
    assert [outcome.state for outcome in outcomes(study, cluster.settings)] == ["complete"] * 2
    checkpoints = cluster.head.run(f"ls {SHARED}/studies/layers-*/checkpoints")
    assert len(checkpoints.split()) == 2


def test_a_tear_down_ends_what_it_started_and_nothing_else(cluster: Premises) -> None:
    with ray_instance(cores=1) as other:
        cluster.down()
        for host in cluster.hosts.hosts:
            assert host.processes("ray") == []
        alive = ["ray", "status", "--address", other.environment["RAY_ADDRESS"]]
        assert "Active:" in cluster.run(*alive, **other.environment)
