"""A connection to Ray: to a private instance of this machine, or to an existing cluster."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Under `uv run`, Ray would put a copy of the working folder on the path of the workers.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

import ray

from memtune.errors import StudyError
from memtune.ray_backend.compatibility import import_dashboard_modules, make_job_config
from memtune.ray_backend.local_instance import run_local_instance
from memtune.ray_backend.private_token import protect_default_token
from memtune.ray_backend.run_folder import open_run_folder
from memtune.stop_signals import keep_handlers

__all__ = ["connect_ray"]

import_dashboard_modules()


@contextmanager
def connect_ray(address: str | None, cpus: int = 1, trials: int = 0) -> Iterator[Path]:
    """Connect to the cluster at `address` (or RAY_ADDRESS), else to a new private instance, for the block.

    Yields a folder for the run's temporary files, which is removed with the connection. A private instance is
    ended with the block, a cluster is left. The private instance prepares workers in the background for up to
    `trials` trials of `cpus` cores each. Raises StudyError when no cluster answers at the address, or
    the private instance does not start.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    protect_default_token(Path.home())
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    options = {"log_to_driver": False, "logging_level": logging.ERROR, "job_config": make_job_config()}
    with ExitStack() as connection:
        folder = connection.enter_context(open_run_folder())
        try:
            with keep_handlers():
                if target == "local":
                    connection.enter_context(run_local_instance(folder, cpus * trials, **options))
                else:
                    connection.callback(ray.shutdown)
                    ray.init(target, **options)
        except Exception as error:  # Ray raises a bare Exception when its node does not start in time
            raise StudyError(_explain_failure(target, error)) from error
        yield folder


def _explain_failure(target: str, error: Exception) -> str:
    if target == "local":
        return (
            f"Ray did not start on this machine: {error}; run the command again when the machine is less busy"
        )
    return f"no Ray cluster answers at {target}: {error}; check the address and its token"
