"""The launch of a cluster: Ray's commands, the token file, and the nodes in a status report."""

import inspect
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memtune.cli import command_line as cli
from memtune.errors import ClusterError, ConfigurationError
from memtune.ray_backend.clusters import launch_cluster, load_cluster
from memtune.ray_backend.clusters.cluster_file import ensure_token, find_token_file
from memtune.ray_backend.clusters.cluster_launch import (
    FAILED_HOST,
    build_ray_command,
    build_ray_environment,
    build_stop_workers_command,
    build_up_command,
    count_min_nodes,
    extract_status_report,
    parse_node_counts,
)

ROOT = Path(__file__).parents[4]
Write = Callable[[str, Callable[[dict[str, Any]], object]], Path]


def keep(config: dict[str, Any]) -> None:
    """Change nothing."""


def test_only_its_owner_can_read_a_new_token(tmp_path: Path) -> None:
    path = tmp_path / ".ray" / "auth_token"
    assert ensure_token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(path.read_text()) == 64


def test_an_existing_token_stays_and_becomes_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "auth_token"
    path.write_text("existing")
    path.chmod(0o644)
    assert not ensure_token(path)
    assert path.read_text() == "existing"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_token_file_is_the_file_that_the_cluster_mounts(write: Write, tmp_path: Path) -> None:
    mounted = tmp_path / "token"
    path = write("aws", lambda config: config["file_mounts"].update({"~/.ray/auth_token": str(mounted)}))
    assert find_token_file(load_cluster(path)) == mounted


@pytest.mark.parametrize("kind", ["aws", "gcp", "onprem"])
def test_no_command_or_variable_of_a_launch_holds_the_token(
    kind: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cluster = load_cluster(write(kind, keep))
    ensure_token(find_token_file(cluster))
    token = (tmp_path / ".ray" / "auth_token").read_text()
    texts = [*build_up_command(cluster, yes=True), *build_ray_environment(cluster).values()]
    assert not [text for text in texts if token in text]


def test_ray_up_receives_the_path_of_the_cluster_file(write: Write) -> None:
    path = write("aws", keep)
    command = build_up_command(load_cluster(path), yes=True)
    assert command[3:] == ["up", "--no-config-cache", "--yes", str(path)]


def test_ray_parses_each_command(write: Write) -> None:
    from ray.scripts.scripts import cli

    cluster = load_cluster(write("aws", keep))
    for python, _, module, name, *arguments in (
        build_up_command(cluster, yes=True),
        build_ray_command(cluster, "down", yes=True),
        [*build_ray_command(cluster, "exec"), "ray status"],
        build_ray_command(cluster, "dashboard", "--port", "8265"),
    ):
        assert (python, module) == (sys.executable, cli.callback.__module__)
        parsed = cli.commands[name].make_context(name, arguments).params
        assert parsed["cluster_config_file"] == str(cluster.path)
        assert parsed.get("yes", True)


def test_ray_asks_for_confirmation_without_yes(write: Write) -> None:
    assert "--yes" not in build_up_command(load_cluster(write("aws", keep)), yes=False)


def test_a_cluster_on_premises_uses_version_1_of_the_autoscaler(write: Write) -> None:
    environment = build_ray_environment(load_cluster(write("onprem", keep)))
    assert environment["RAY_UP_enable_autoscaler_v2"] == "0"


@pytest.mark.parametrize(("kind", "minimum"), [("aws", 1), ("gcp", 1), ("onprem", 3)])
def test_the_minimum_of_nodes_is_the_head_and_min_workers_of_each_type(
    kind: str, minimum: int, write: Write
) -> None:
    assert count_min_nodes(load_cluster(write(kind, keep))) == minimum


def test_a_file_with_placeholders_is_not_launched() -> None:
    steps: list[str] = []
    with pytest.raises(ConfigurationError, match="EDIT-ubuntu-image is a placeholder"):
        launch_cluster(ROOT / "cluster.yaml", yes=True, timeout_seconds=0, on_progress=steps.append)
    assert steps == []


def test_nodes_are_counted_in_a_report_of_autoscaler_version_1() -> None:
    from ray.autoscaler._private.autoscaler import AutoscalerSummary
    from ray.autoscaler._private.util import LoadMetricsSummary, format_info_string

    usage: Any = {"CPU": (0.0, 4.0)}
    demand: Any = [({"CPU": 1}, 7)]  # Ray annotates int and float as numbers.Number
    load = LoadMetricsSummary(
        usage=usage,
        resource_demand=demand,
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
    assert parse_node_counts(format_info_string(load, nodes)) == {"local.cluster.node": 2}


def test_nodes_are_counted_in_a_report_of_autoscaler_version_2() -> None:
    from ray.autoscaler.v2.schema import ClusterStatus, NodeInfo
    from ray.autoscaler.v2.utils import ClusterStatusFormatter

    def node(kind: str, is_running: bool) -> NodeInfo:
        return NodeInfo(
            instance_type_name="machine",
            ray_node_type_name=kind,
            instance_id=kind,
            ip_address="10.0.0.1",
            node_status="RUNNING" if is_running else "IDLE",
            node_id=kind,
        )

    status = ClusterStatus(
        active_nodes=[node("head", True), node("gpu", True)], idle_nodes=[node("gpu", False)]
    )
    assert parse_node_counts(ClusterStatusFormatter.format(status)) == {"head": 1, "gpu": 2}


def test_nodes_are_counted_in_a_report_with_carriage_returns() -> None:
    assert parse_node_counts("Shared connection\r\nActive:\r\n 1 head\r\nPending:\r\n 4 gpu\r\n") == {
        "head": 1
    }


def test_a_host_that_ray_gives_up_is_found_in_the_log_of_its_autoscaler() -> None:
    from ray.autoscaler._private import autoscaler

    line = "StandardAutoscaler: Terminating the node with id 10.0.0.12 and ip 10.0.0.12. (launch failed)"
    source = inspect.getsource(autoscaler.StandardAutoscaler)
    assert all(part in source for part in ('f"Terminating the node with id {node_id}"', '"launch failed"'))
    assert FAILED_HOST.findall(f"{line}\n{line.replace('launch failed', 'idle')}\n") == ["10.0.0.12"]


def test_output_without_a_report_is_an_error() -> None:
    with pytest.raises(ClusterError, match="may still be starting"):
        parse_node_counts("ssh: connect to host 10.0.0.1 port 22: Connection refused")


def test_a_running_head_is_not_restarted(write: Write) -> None:
    cluster = load_cluster(write("aws", keep))
    assert "--no-restart" in build_up_command(cluster, yes=True, restart=False)
    assert "--no-restart" not in build_up_command(cluster, yes=True)


def test_log_lines_around_a_report_are_removed() -> None:
    report = "======== Autoscaler status: now ========\r\nActive:\r\n 1 head\r\n"
    printed = f"noise\n{report}\x1b[0m2026-01-02 03:04:05,678\tINFO more noise"
    assert extract_status_report(printed) == "======== Autoscaler status: now ========\nActive:\n 1 head"


def test_workers_on_premises_are_stopped_through_the_head(write: Write) -> None:
    cluster = load_cluster(write("onprem", keep))
    program, *_, login, script = build_stop_workers_command(cluster)
    assert (program, login) == ("ssh", "my-user@10.0.0.10")
    assert "10.0.0.11 10.0.0.12" in script
    assert "my-user@HOST" in script
    assert "ray stop" in script
    assert "ray start" not in script
    assert subprocess.run(["bash", "-n", "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["aws", "gcp"])
def test_no_worker_of_a_cloud_is_stopped_over_ssh(kind: str, write: Write) -> None:
    assert build_stop_workers_command(load_cluster(write(kind, keep))) == []


@pytest.mark.parametrize("command", ["status", "dashboard", "down"])
def test_a_file_with_placeholders_is_refused_before_ray_runs(
    command: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a command ran"))
    path = write("onprem", lambda config: config["provider"].update(head_ip="192.0.2.10"))
    refused = CliRunner().invoke(cli.app, ["cluster", command, str(path)]).exception
    assert isinstance(refused, ConfigurationError)
    assert "provider.head_ip: 192.0.2.10 is a placeholder" in str(refused)


def test_nodes_are_stopped_without_a_terminal_only_with_yes(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a command ran"))
    refused = CliRunner().invoke(cli.app, ["cluster", "down", str(write("aws", keep))]).exception
    assert isinstance(refused, ConfigurationError)
    assert "add --yes" in str(refused)


@pytest.mark.parametrize("arguments", [["dashboard"], ["down", "--yes"]])
def test_a_failure_of_ray_is_one_line(
    arguments: list[str], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert options["stderr"] == subprocess.PIPE
        trace = "Traceback (most recent call last):\n  File\nNoCredentialsError: Unable to locate them\n"
        return subprocess.CompletedProcess(command, 1, None, trace)

    monkeypatch.setattr(subprocess, "run", fail)
    failed = CliRunner().invoke(cli.app, ["cluster", *arguments, str(write("aws", keep))]).exception
    assert isinstance(failed, ClusterError)
    assert ": NoCredentialsError: Unable to locate them; " in str(failed)
    assert "Traceback" not in str(failed)
