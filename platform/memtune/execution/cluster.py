"""Ray, as memtune uses it: a private instance on one machine, or the cluster it is told to join."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray

with suppress(ImportError):
    # ray.init imports it: here instead, while no other thread imports what it needs too.
    import ray.dashboard.optional_deps

from memtune.errors import StudyError

__all__ = ["connected"]


@contextmanager
def connected(address: str | None, cpus: int = 1, trials: int = 0) -> Iterator[None]:
    """Ray for the time of the block: the cluster at `address` (or RAY_ADDRESS), else one of its own here.

    A local instance is ended with the block; a cluster is only left. The workers of a local one get ready in
    the background for up to `trials` trials of `cpus` cores each. Raises StudyError when no cluster answers
    at the address.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    try:
        ray.init(
            target,
            include_dashboard=False if target == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _system_config=_private(cpus * trials) if target == "local" else None,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StudyError(
            f"no Ray cluster answers at {target}: {error}; check the address and its token"
        ) from error
    try:
        if target == "local":
            _end_autoscaler()
        yield
    finally:
        ray.shutdown()


def _private(cores: int) -> dict[str, Any]:
    """Ray's settings for an instance of our own, of which trials will use so many cores."""
    # The node looks for its store, which is there after milliseconds, only once a second otherwise.
    quick = {"raylet_client_connect_timeout_milliseconds": 20, "raylet_client_num_connect_attempts": 1000}
    # Ray starts a worker for each core: they import what a trial needs while the driver is still importing.
    ready = {"preload_python_modules": ["memtune.execution.trial"]}
    return {**quick, **ready} if 2 * cores >= (os.cpu_count() or 1) else quick


def _end_autoscaler() -> None:
    """End the process that watches for nodes to add: there are none, and it holds up the instance's end."""
    node = ray._private.worker._global_node
    if node is not None:
        node.kill_monitor(check_alive=False)
