"""What memtune relies on in Ray's private code; a failure here means that a version of Ray changed it."""

import inspect
import os
from pathlib import Path
from typing import Any

import pytest
from ray._private.runtime_env import packaging
from ray.autoscaler._private import util
from ray.autoscaler._private.command_runner import SSHCommandRunner

from memtune.ray_backend.compatibility import (
    ClusterConfigError,
    complete_cluster_config,
    iterate_packaged_files,
    validate_cluster_config,
)

LOCAL_CONFIG: dict[str, Any] = {
    "cluster_name": "small",
    "provider": {"type": "local", "head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2", "10.0.0.3"]},
    "auth": {"ssh_user": "me"},
}


class FakeProcesses:
    """Records the commands that Ray would run."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def check_call(self, command: list[str], *_: object, **__: object) -> int:
        self.commands.append(command)
        return 0

    check_output = check_call


class FakeProvider:
    def internal_ip(self, _: str) -> str:
        return "10.0.0.1"


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> FakeProcesses:
    """The processes of an SSHCommandRunner that ran a command and copied a file."""
    monkeypatch.setattr(SSHCommandRunner, "_ensure_ssh_control_path", lambda self: None)
    found = FakeProcesses()
    runner = SSHCommandRunner("", "0", FakeProvider(), {"ssh_user": "me"}, "small", found, True)
    runner.run("uptime", with_output=True)
    runner.run_rsync_up("token", "~/token")
    return found


def test_ray_starts_ssh_by_name(processes: FakeProcesses) -> None:
    command, copy = processes.commands
    assert command[0] == "ssh"
    assert copy[copy.index("--rsh") + 1].split()[0] == "ssh"


def test_ray_still_accepts_any_host_key_by_itself(processes: FakeProcesses) -> None:
    """Once this fails, the ssh program of memtune.ray_backend.clusters may no longer be necessary."""
    assert all("StrictHostKeyChecking=no" in " ".join(command) for command in processes.commands)


def test_ray_fills_in_the_node_type_of_existing_hosts() -> None:
    assert list(inspect.signature(util.prepare_config).parameters) == ["config"]
    (node_type,) = complete_cluster_config(LOCAL_CONFIG)["available_node_types"].values()
    assert node_type["min_workers"] == 2


def test_ray_names_the_entry_that_it_refuses() -> None:
    with pytest.raises(ClusterConfigError) as refused:
        validate_cluster_config(LOCAL_CONFIG | {"idle_timeout_minutes": "ten"})
    assert refused.value.entry == "idle_timeout_minutes"


def test_without_rays_functions_a_file_is_taken_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(util, "prepare_config")
    monkeypatch.delattr(util, "validate_config")
    assert complete_cluster_config(LOCAL_CONFIG) == LOCAL_CONFIG
    validate_cluster_config(LOCAL_CONFIG | {"idle_timeout_minutes": "ten"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a source file, an ignored file and git's own folder."""
    (tmp_path / ".git").mkdir()
    for name in ("source.py", "notes.bin", ".git/pack"):
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("*.bin\n")
    return tmp_path


def list_packaged(folder: Path) -> set[str]:
    return {os.path.relpath(path, folder) for path in iterate_packaged_files(folder)}


def test_ray_leaves_out_what_ignore_files_name(folder: Path) -> None:
    assert list_packaged(folder) == {"source.py", ".gitignore"}


def test_without_rays_functions_every_file_counts_except_those_of_git(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(packaging, "_get_excludes")
    assert list_packaged(folder) == {"source.py", "notes.bin", ".gitignore"}
