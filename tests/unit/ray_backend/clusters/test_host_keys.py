"""The ssh program that verifies host keys, its environment, and the installer of uv."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memtune.ray_backend.clusters import load_cluster
from memtune.ray_backend.clusters.cluster_launch import (
    SSH_FOLDER,
    build_ray_environment,
    find_known_hosts_file,
    find_refused_hosts,
    forget_host_keys,
)

ROOT = Path(__file__).parents[4]
Write = Callable[[str, Callable[[dict[str, Any]], object]], Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    return path


@pytest.mark.skipif(shutil.which("ssh") is None, reason="no openssh-client on this machine")
def test_the_options_of_the_ssh_program_precede_those_of_ray(write: Write) -> None:
    cluster = load_cluster(write("onprem", lambda config: None))
    command = ["ssh", "-G", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "host"]
    done = subprocess.run(
        command, env=build_ray_environment(cluster), capture_output=True, text=True, check=True
    )
    options = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert options["stricthostkeychecking"] == "accept-new"
    assert options["userknownhostsfile"] == str(find_known_hosts_file(cluster))


def test_each_cluster_has_its_own_file_of_host_keys(write: Write, home: Path) -> None:
    cluster = load_cluster(write("aws", lambda config: config.update(cluster_name="../a b")))
    assert find_known_hosts_file(cluster) == home / ".memtune" / "known_hosts_.._a_b"


def test_the_refused_hosts_are_read_from_the_output_of_ssh() -> None:
    output = "Host key for 10.0.0.11 has changed and you have requested strict checking.\r\n"
    assert find_refused_hosts(f"@ WARNING @\n{output}{output}Host key verification failed.") == ["10.0.0.11"]


@pytest.mark.parametrize(("kind", "remain"), [("aws", False), ("onprem", True)])
def test_host_keys_are_forgotten_with_the_machines_of_a_cloud_only(
    kind: str, remain: bool, write: Write
) -> None:
    cluster = load_cluster(write(kind, lambda config: None))
    file = find_known_hosts_file(cluster)
    file.parent.mkdir()
    file.touch()
    forget_host_keys(cluster)
    assert file.exists() == remain


def test_the_ssh_program_is_executable() -> None:
    assert os.access(SSH_FOLDER / "ssh", os.X_OK)


def test_a_wheel_of_uv_with_another_digest_is_not_installed(tmp_path: Path, home: Path) -> None:
    """A stand-in for curl delivers another file than the one that the digest names."""
    curl = tmp_path / "programs" / "curl"
    curl.parent.mkdir()
    curl.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo other > "$2"\n')
    curl.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "clusters" / "install_uv.sh")],
        env={**os.environ, "PATH": f"{curl.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "has another digest; nothing was installed" in done.stderr
    assert list(home.iterdir()) == []


def test_nodes_and_lock_files_have_the_same_version_of_uv() -> None:
    assert "wheel=uv-0.13.8-" in (ROOT / "clusters" / "install_uv.sh").read_text()
    assert "uv==0.13.8" in (ROOT / "Makefile").read_text()
