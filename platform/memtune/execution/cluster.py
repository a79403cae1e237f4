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
def connected(address: str | None) -> Iterator[None]:
    """Ray for the time of the block: the cluster at `address` (or RAY_ADDRESS), else one of its own here.

    A local instance is ended with the block; a cluster is only left. Raises StudyError when no cluster
    answers at the address.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    try:
        ray.init(
            target,
            include_dashboard=False if target == "local" else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StudyError(
            f"no Ray cluster answers at {target}: {error}; check the address and its token"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def free_resources() -> dict[str, float]:
    """Cores and GPUs of the connected cluster, by Ray's names "CPU" and "GPU"."""
    resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return {name: float(count) for name, count in resources.items() if name in ("CPU", "GPU")}
