"""Addresses at which no Ray cluster answers, and the cores of a private instance."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

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
