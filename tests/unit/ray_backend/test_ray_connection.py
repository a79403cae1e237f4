"""A Ray instance that does not start is an error with its reason, not a traceback."""

import pytest

from memtune.errors import StudyError
from memtune.ray_backend import ray_connection


def test_a_private_instance_that_does_not_start_in_time_is_an_error_with_its_reason(monkeypatch) -> None:
    def time_out(*arguments: object, **options: object) -> None:
        raise Exception("The current node timed out during startup")

    monkeypatch.setattr(ray_connection, "run_local_instance", time_out)
    with (
        pytest.raises(StudyError, match="did not start on this machine: The current node timed out"),
        ray_connection.connect_ray(None),
    ):
        pass
