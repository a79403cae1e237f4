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
from memtune.execution.instance import on_this_machine, settings_here

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
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if target == "local":
            with on_this_machine():
                ray.init(target, **quiet, _system_config=settings_here(cpus * trials))
        else:
            ray.init(target, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StudyError(
            f"no Ray cluster answers at {target}: {error}; check the address and its token"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()
