"""A Ray instance that does not start is an error with its reason, not a traceback."""

from pathlib import Path

import pytest

from memtune.errors import StudyError
from memtune.ray_backend import local_instance, ray_connection


def test_a_private_instance_that_does_not_start_in_time_is_an_error_with_its_reason(monkeypatch) -> None:
    def time_out(*arguments: object, **options: object) -> None:
        raise Exception("The current node timed out during startup")

    monkeypatch.setattr(ray_connection, "run_local_instance", time_out)
    with (
        pytest.raises(StudyError, match="did not start on this machine: The current node timed out"),
        ray_connection.connect_ray(None),
    ):
        pass


def test_a_private_instance_that_does_not_start_in_time_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[Path] = []

    def start(folder: Path, **options: object) -> None:
        started.append(folder)
        if len(started) == 1:
            raise Exception("The current node timed out during startup")

    monkeypatch.setattr(local_instance, "start_instance", start)
    with local_instance.run_local_instance(tmp_path, cores=1):
        assert started == [tmp_path / "ray"] * 2


def test_another_fault_of_a_private_instance_is_raised_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(folder: Path, **options: object) -> None:
        raise ValueError("no such option")

    monkeypatch.setattr(local_instance, "start_instance", fail)
    with (
        pytest.raises(ValueError, match="no such option"),
        local_instance.run_local_instance(tmp_path, cores=1),
    ):
        pass
