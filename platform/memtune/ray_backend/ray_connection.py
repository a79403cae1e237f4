"""A connection to Ray: to a private instance of this machine, or to an existing cluster.

A private instance has only the processes that trials need. Who has its token can run code as this user, so
only this user can read it.
"""

import logging
import os
import secrets
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGHUP
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
# Under `uv run`, Ray would put a copy of the working folder on the path of the workers.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")

import ray

from memtune.errors import StudyError
from memtune.ray_backend import compatibility
from memtune.ray_backend.clusters.cluster_file import read_token
from memtune.ray_backend.compatibility import set_environment
from memtune.ray_backend.instance_cleanup import RUN_FOLDER_VARIABLE
from memtune.ray_backend.run_folder import open_run_folder
from memtune.retry import Backoff, retry
from memtune.stop_signals import keep_handlers, start_processes_without

log = logging.getLogger(__name__)

OWNER_ONLY_MODE = 0o600
RETRY_SECONDS = 60.0
"""Ray gives up when a process of its takes 15 s to start, as on a busy machine; so long it is tried again."""
ANSWER_SECONDS = 10.0
"""Seconds in which a cluster has to answer; ray.init alone tries for minutes without a message."""
HTTP2_START = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a client of gRPC sends first. The answer of the head of a cluster begins with its settings."""
SETTINGS_FRAME = 4
CHANGED_VARIABLES = ("PYTHONBREAKPOINT", "RAY_USAGE_STATS_ENABLED")
"""What ray.init sets in the environment, and leaves there."""

_connection = threading.Lock()
"""Held while this process is connected: Ray has one connection per process."""

compatibility.import_dashboard_modules()


@contextmanager
def run_local_instance(folder: Path, cores: int | None, **options: Any) -> Iterator[None]:
    """Run a private Ray instance during the block and connect to it.

    Its session and token are in `folder`, which must be private: Ray gives its own folders mode 0777. It has
    `cores` of the machine, or all, and starts with a worker for each. `options` go to ray.init.
    """
    present = os.cpu_count() or 1
    cores = min(cores or present, present)

    def start() -> None:
        ray.shutdown()  # what is left of an attempt before
        compatibility.start_instance(folder / "ray", cores, **options)

    with use_private_token(folder):
        try:
            variables = {RUN_FOLDER_VARIABLE: str(folder), "PYTHONSAFEPATH": "1"}
            with compatibility.use_lean_node(), set_environment(variables), start_processes_without(SIGHUP):
                retry(start, compatibility.is_start_timeout, Backoff(1.0, 1.0).next_pause, RETRY_SECONDS)
            yield
        finally:
            ray.shutdown()


@contextmanager
def use_private_token(folder: Path) -> Iterator[None]:
    """Ray started in the block has a new token in `folder`, independent of the user's variables.

    RAY_AUTH_MODE is unset because Ray then enables tokens for an instance it starts; once Ray is imported,
    setting it has no effect.
    """
    path = folder / "token"
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY_MODE), "w") as file:
        file.write(secrets.token_hex(32))
    with set_environment({"RAY_AUTH_TOKEN_PATH": str(path), "RAY_AUTH_TOKEN": None, "RAY_AUTH_MODE": None}):
        compatibility.reset_token_cache()
        try:
            yield
        finally:
            compatibility.reset_token_cache()


def protect_default_token(home: Path) -> None:
    """Let only its owner read the token of clusters in the home folder: Ray creates it with mode 0644."""
    path = home / ".ray" / "auth_token"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(OWNER_ONLY_MODE)
            log.warning(
                "%s had mode %04o and now has 0600; make a new token if other users of this machine may have "
                "read it",
                path,
                mode,
            )
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot protect %s: %s", path, error.strerror)


@contextmanager
def connect_ray(
    address: str | None,
    cpus: int = 1,
    trials: int | None = None,
    notify: Callable[[str], object] = lambda text: None,
) -> Iterator[Path]:
    """Connect to the cluster at `address` (or RAY_ADDRESS), else to a new private instance, for the block.

    `notify` prints which cluster it is. Yields a folder for the run's temporary files, which is removed with
    the connection. A private instance is ended with the block, a cluster is left. The private instance has
    the cores for `trials` trials of `cpus` cores each, as far as the machine has them, or all cores. Raises
    StudyError when this process is connected already, when no cluster answers at the address within
    ANSWER_SECONDS, or when the private instance does not start.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    protect_default_token(Path.home())
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    job_config = compatibility.make_job_config()
    options = {"log_to_driver": False, "logging_level": logging.ERROR, "job_config": job_config}
    with ExitStack() as connection:
        connection.enter_context(_claim_process())
        connection.enter_context(set_environment({name: os.environ.get(name) for name in CHANGED_VARIABLES}))
        folder = connection.enter_context(open_run_folder())
        try:
            with keep_handlers(), compatibility.leave_stop_signals():
                if target == "local":
                    connection.enter_context(run_local_instance(folder, trials and cpus * trials, **options))
                else:
                    _check_cluster(target)
                    if read_token(os.environ):
                        connection.enter_context(compatibility.use_token_mode())
                    connection.callback(ray.shutdown)
                    ray.init(target, **options)
                    notify(
                        f"trials run on the Ray cluster at {target}" + ("" if address else " (RAY_ADDRESS)")
                    )
        except Exception as error:  # Ray raises a bare Exception when its node does not start in time
            raise StudyError(_explain_failure(target, not address, error)) from error
        yield folder


@contextmanager
def _claim_process() -> Iterator[None]:
    """Keep other studies of this process from Ray during the block.

    Raises StudyError where one runs, or where the user has connected the process: ray.shutdown would end what
    they have there.
    """
    if not _connection.acquire(blocking=False):
        raise StudyError(
            "another study runs in this process, and Ray has one connection per process; run one study after "
            "the other, or each in a process of its own"
        )
    try:
        if ray.is_initialized():
            address = ray.get_runtime_context().gcs_address
            raise StudyError(
                f"this process is connected to Ray at {address} already, and a study connects by itself; "
                "call ray.shutdown() first, or run the study in another process"
            )
        yield
    finally:
        _connection.release()


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
    named = ", which RAY_ADDRESS names" if is_from_environment else ""
    unset = ", or unset RAY_ADDRESS to train on this machine" if is_from_environment else ""
    token = "its token (~/.ray/auth_token, or the file in RAY_AUTH_TOKEN_PATH; RAY_AUTH_MODE is not disabled)"
    return f"no Ray cluster answers at {target}{named}: {error}; check the address and {token}{unset}"
