"""A connection to Ray: to a private instance of this machine, or to an existing cluster."""

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Under `uv run`, Ray would put a copy of the working folder on the path of the workers.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

import ray

from memtune.errors import StudyError
from memtune.ray_backend.compatibility import import_dashboard_modules, leave_stop_signals, make_job_config
from memtune.ray_backend.local_instance import run_local_instance
from memtune.ray_backend.private_token import protect_default_token
from memtune.ray_backend.run_folder import open_run_folder
from memtune.stop_signals import keep_handlers

ANSWER_SECONDS = 10.0
"""Seconds in which a cluster has to answer; ray.init alone tries for minutes without a message."""
HTTP2_START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client of gRPC sends first. The answer of the head of a cluster begins with its settings."""
SETTINGS_FRAME = 4

import_dashboard_modules()


@contextmanager
def connect_ray(
    address: str | None, cpus: int = 1, trials: int = 0, notify: Callable[[str], object] = lambda text: None
) -> Iterator[Path]:
    """Connect to the cluster at `address` (or RAY_ADDRESS), else to a new private instance, for the block.

    `notify` prints which cluster it is. Yields a folder for the run's temporary files, which is removed with
    the connection. A private instance is ended with the block, a cluster is left. The private instance
    prepares workers in the background for up to `trials` trials of `cpus` cores each. Raises StudyError when
    no cluster answers at the address within ANSWER_SECONDS, or the private instance does not start.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    protect_default_token(Path.home())
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    options = {"log_to_driver": False, "logging_level": logging.ERROR, "job_config": make_job_config()}
    with ExitStack() as connection:
        folder = connection.enter_context(open_run_folder())
        try:
            with keep_handlers(), leave_stop_signals():
                if target == "local":
                    connection.enter_context(run_local_instance(folder, cpus * trials, **options))
                else:
                    _check_cluster(target)
                    connection.callback(ray.shutdown)
                    ray.init(target, **options)
                    notify(
                        f"trials run on the Ray cluster at {target}" + ("" if address else " (RAY_ADDRESS)")
                    )
        except Exception as error:  # Ray raises a bare Exception when its node does not start in time
            raise StudyError(_explain_failure(target, not address, error)) from error
        yield folder


def _check_cluster(address: str) -> None:
    """Raise OSError or ValueError where no head of a cluster answers at HOST:PORT; others are left to Ray."""
    if address == "auto" or address.startswith("ray://"):
        return
    host, _, port = address.rpartition(":")
    if "/" in host or not (host and port.isdecimal()):
        raise ValueError("it is not HOST:PORT")
    with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0") == "0":
            connection.sendall(HTTP2_START)
            if connection.recv(9)[3:4] != bytes([SETTINGS_FRAME]):
                raise ConnectionError("another program answers")


def _explain_failure(target: str, is_from_environment: bool, error: Exception) -> str:
    if target == "local":
        return (
            f"Ray did not start on this machine: {error}; run the command again when the machine is less busy"
        )
    if is_from_environment:
        return (
            f"no Ray cluster answers at {target}, which RAY_ADDRESS names: {error}; check the address and "
            "its token, or unset RAY_ADDRESS to train on this machine"
        )
    return f"no Ray cluster answers at {target}: {error}; check the address and its token"
