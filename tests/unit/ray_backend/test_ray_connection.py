"""Addresses at which no Ray cluster answers, connections that are refused, and what a connection leaves."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from memtune.errors import StudyError
from memtune.ray_backend import compatibility, ray_connection
from memtune.ray_backend.ray_connection import connect_ray


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which connections are accepted and nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "127.0.0.1:SILENT", "no.invalid:6379", "http://127.0.0.1:1"]
)
def test_a_dead_address_in_the_environment_is_named_within_seconds(
    address: str, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_connection, "ANSWER_SECONDS", 0.5)
    address = address.replace("SILENT", str(silent_port))
    monkeypatch.setenv("RAY_ADDRESS", address)
    start = time.monotonic()
    with pytest.raises(StudyError, match="or unset RAY_ADDRESS") as refused, ExitStack() as stack:
        stack.enter_context(connect_ray(None))
    assert f"no Ray cluster answers at {address}, which RAY_ADDRESS names" in str(refused.value)
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(("trials", "cores"), [(1, 2), (3, 6), (5, 8), (None, 8)])
def test_a_private_instance_has_the_cores_of_its_trials_as_far_as_the_machine_has_them(
    trials: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(compatibility, "start_instance", lambda folder, cores, **_: started.append(cores))
    with connect_ray("local", 2, trials):
        assert started == [cores]


def test_a_process_that_is_connected_to_ray_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "shutdown", lambda: pytest.fail("the user's connection is ended"))
    for address in (None, "auto"):
        with pytest.raises(StudyError, match=r"connected to Ray at 10\.0\.0\.1:6379 already"):
            connect_ray(address).__enter__()


def test_a_second_study_of_a_process_is_refused_while_the_first_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compatibility, "start_instance", lambda folder, cores, **_: None)
    with connect_ray("local"):
        token = os.environ["RAY_AUTH_TOKEN_PATH"]
        with pytest.raises(StudyError, match="another study runs in this process"):
            connect_ray("local").__enter__()
        assert os.environ["RAY_AUTH_TOKEN_PATH"] == token
    with connect_ray("local"):
        assert os.environ["RAY_AUTH_TOKEN_PATH"] != token


@pytest.mark.parametrize(("mode", "used"), [(None, "token"), ("disabled", "disabled")])
def test_a_cluster_gets_the_token_of_this_machine_unless_tokens_are_disabled(
    mode: str | None, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, modes = tmp_path / "token", list[str | None]()
    token.write_text("cluster")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.setattr(ray_connection, "_check_cluster", lambda address: None)
    monkeypatch.setattr(ray, "init", lambda *_, **__: modes.append(os.environ.get("RAY_AUTH_MODE")))
    with connect_ray("10.0.0.1:6379"):
        assert modes == [used]
    assert os.environ.get("RAY_AUTH_MODE") == mode


def test_a_connection_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(folder: Path, cores: int, **options: object) -> None:
        os.environ.update({"PYTHONBREAKPOINT": "ray.util.rpdb.set_trace", "RAY_USAGE_STATS_ENABLED": "0"})

    monkeypatch.setattr(compatibility, "start_instance", start)
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    before = dict(os.environ)
    with connect_ray("local"):
        assert os.environ["PYTHONBREAKPOINT"] != "0"
    assert dict(os.environ) == before


def test_the_first_connection_of_a_process_leaves_its_hook_for_exceptions() -> None:
    program = (
        "import sys\n"
        "from memtune.ray_backend.ray_executor import RayExecutor\n"
        "try:\n"
        "    RayExecutor('127.0.0.1:1').connect(1, 1)\n"
        "finally:\n"
        "    print('ray' in sys.modules, sys.excepthook is sys.__excepthook__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "True True\n", done.stderr
