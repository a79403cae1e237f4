"""Ray, as memtune uses it: a private instance on one machine, or the cluster it is told to join."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray

from memtune.errors import StudyError

__all__ = ["connected", "free_resources"]


@contextmanager
def connected(address: str | None, cpus: int | None = None) -> Iterator[None]:
    """Ray for the time of the block: the cluster at `address` (or RAY_ADDRESS), else a private local instance.

    A local instance is ended with the block; a cluster is only left. Raises StudyError when there is no cluster
    at the address.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    local = {"include_dashboard": False, "num_cpus": cpus} if target == "local" else {}
    try:
        ray.init(target, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StudyError(f"no Ray cluster answers at {target}: {error}; check the address and its token") from error
    try:
        yield
    finally:
        ray.shutdown()


def free_resources() -> dict[str, float]:
    """Cores and GPUs of the connected cluster, by Ray's names "CPU" and "GPU"."""
    return {name: float(count) for name, count in ray.cluster_resources().items() if name in ("CPU", "GPU")}
