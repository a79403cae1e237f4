"""The launch: commands built, the token's file, and what a status report says is there."""

import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memtune.errors import ClusterError, ConfigurationError
from memtune.execution.clusters import cluster_up, load_cluster
from memtune.execution.clusters.launch import (
    nodes_in,
    ray_down,
    ray_environment,
    ray_status,
    ray_up,
    report_in,
    stop_workers,
)
from memtune.execution.clusters.schema import least_nodes
from memtune.execution.clusters.token import ensure_token, token_file

ROOT = Path(__file__).parents[4]
Write = Callable[[str, Callable[[dict[str, Any]], object]], Path]


def as_it_is(config: dict[str, Any]) -> None:
    """Break nothing."""


def test_the_token_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / ".ray" / "auth_token"
    assert ensure_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(path.read_text()) == 64


def test_a_token_that_is_there_stays_and_loses_rights_of_others(tmp_path: Path) -> None:
    path = tmp_path / "auth_token"
    path.write_text("mine")
    path.chmod(0o644)
    assert not ensure_token(path)
    assert path.read_text() == "mine"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_token_is_the_file_that_the_nodes_get(write: Write, tmp_path: Path) -> None:
    mounted = tmp_path / "token"
    path = write("aws", lambda config: config["file_mounts"].update({"~/.ray/auth_token": str(mounted)}))
    assert token_file(load_cluster(path)) == mounted


@pytest.mark.parametrize("kind", ["aws", "gcp", "onprem"])
def test_no_command_or_variable_of_a_launch_holds_the_token(
    kind: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster = load_cluster(write(kind, as_it_is))
    ensure_token(token_file(cluster))
    token = (tmp_path / ".ray" / "auth_token").read_text()
    said = [*ray_up(cluster, yes=True), *ray_environment(cluster).values()]
    assert not [text for text in said if token in text]


def test_ray_is_asked_to_launch_the_file_itself(write: Write) -> None:
    path = write("aws", as_it_is)
    assert ray_up(load_cluster(path), yes=True)[3:] == ["up", "--no-config-cache", "--yes", str(path)]


def test_ray_understands_each_command(write: Write) -> None:
    from ray.scripts.scripts import cli

    cluster = load_cluster(write("aws", as_it_is))
    for python, _, module, name, *arguments in (
        ray_up(cluster, yes=True),
        ray_down(cluster, yes=True),
        ray_status(cluster),
    ):
        assert (python, module) == (sys.executable, cli.callback.__module__)
        parsed = cli.commands[name].make_context(name, arguments).params
        assert parsed["cluster_config_file"] == str(cluster.path)
        assert parsed.get("yes", True)


def test_ray_asks_the_user_unless_told_not_to(write: Write) -> None:
    cluster = load_cluster(write("aws", as_it_is))
    assert "--yes" not in [*ray_up(cluster, yes=False), *ray_down(cluster, yes=False)]


def test_on_premises_the_first_autoscaler_is_used(write: Write) -> None:
    environment = ray_environment(load_cluster(write("onprem", as_it_is)))
    assert environment["RAY_UP_enable_autoscaler_v2"] == "0"


@pytest.mark.parametrize(("kind", "least"), [("aws", 1), ("gcp", 1), ("onprem", 3)])
def test_the_least_number_of_nodes_is_the_head_and_each_types_least(
    kind: str, least: int, write: Write
) -> None:
    assert least_nodes(load_cluster(write(kind, as_it_is))) == least


def test_a_file_with_placeholders_is_not_launched() -> None:
    steps: list[str] = []
    with pytest.raises(ConfigurationError, match="EDIT-ubuntu-image stands for a value of yours"):
        cluster_up(ROOT / "cluster.yaml", yes=True, wait=0, tell=steps.append)
    assert steps == []


def test_nodes_are_counted_in_a_report_of_the_first_autoscaler() -> None:
    from ray.autoscaler._private.autoscaler import AutoscalerSummary
    from ray.autoscaler._private.util import LoadMetricsSummary, format_info_string

    load = LoadMetricsSummary(
        usage={"CPU": (0.0, 4.0)},
        resource_demand=[({"CPU": 1}, 7)],
        pg_demand=[],
        request_demand=[],
        node_types=[],
    )
    nodes = AutoscalerSummary(
        active_nodes={"local.cluster.node": 2},
        idle_nodes=None,
        pending_nodes=[("10.0.0.12", "local.cluster.node", "setting-up")],
        pending_launches={"local.cluster.node": 3},
        failed_nodes=[],
    )
    assert nodes_in(format_info_string(load, nodes)) == {"local.cluster.node": 2}


def test_nodes_are_counted_in_a_report_of_the_second_autoscaler() -> None:
    from ray.autoscaler.v2.schema import ClusterStatus, NodeInfo
    from ray.autoscaler.v2.utils import ClusterStatusFormatter

    def node(kind: str, at_work: bool) -> NodeInfo:
        return NodeInfo(
            instance_type_name="machine",
            ray_node_type_name=kind,
            instance_id=kind,
            ip_address="10.0.0.1",
            node_status="RUNNING" if at_work else "IDLE",
            node_id=kind,
        )

    status = ClusterStatus(
        active_nodes=[node("head", True), node("gpu", True)], idle_nodes=[node("gpu", False)]
    )
    assert nodes_in(ClusterStatusFormatter.format(status)) == {"head": 1, "gpu": 2}


def test_a_terminals_line_ends_do_not_hide_the_nodes() -> None:
    assert nodes_in("Shared connection\r\nActive:\r\n 1 head\r\nPending:\r\n 4 gpu\r\n") == {"head": 1}


def test_an_answer_without_a_report_is_refused() -> None:
    with pytest.raises(ClusterError, match="may still be starting"):
        nodes_in("ssh: connect to host 10.0.0.1 port 22: Connection refused")


def test_a_running_head_is_not_restarted(write: Write) -> None:
    cluster = load_cluster(write("aws", as_it_is))
    assert "--no-restart" in ray_up(cluster, yes=True, restart=False)
    assert "--no-restart" not in ray_up(cluster, yes=True)


def test_what_ray_logs_around_a_report_is_left_out() -> None:
    report = "======== Autoscaler status: now ========\r\nActive:\r\n 1 head\r\n"
    printed = f"noise\n{report}\x1b[0m2026-01-02 03:04:05,678\tINFO more noise"
    assert report_in(printed) == "======== Autoscaler status: now ========\nActive:\n 1 head"


def test_workers_on_premises_are_stopped_by_way_of_the_head(write: Write) -> None:
    cluster = load_cluster(write("onprem", as_it_is))
    program, *_, login, script = stop_workers(cluster)
    assert (program, login) == ("ssh", "my-user@10.0.0.10")
    assert "10.0.0.11 10.0.0.12" in script
    assert "my-user@HOST" in script
    assert "ray stop" in script
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["aws", "gcp"])
def test_in_a_cloud_no_worker_is_stopped_by_hand(kind: str, write: Write) -> None:
    assert stop_workers(load_cluster(write(kind, as_it_is))) == []
