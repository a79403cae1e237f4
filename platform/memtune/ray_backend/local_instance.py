"""A private Ray instance on one machine: only the processes that trials need, reachable by its user only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from memtune.ray_backend.compatibility import use_lean_node
from memtune.ray_backend.instance_cleanup import RUN_FOLDER_VARIABLE
from memtune.ray_backend.private_token import set_environment, use_private_token

__all__ = ["run_local_instance"]

WORKER_IDLE_TIMEOUT_MILLISECONDS = 3_600_000


@contextmanager
def run_local_instance(folder: Path, cores: int, **options: Any) -> Iterator[None]:
    """Run a private Ray instance during the block and connect to it.

    Its session and token are in `folder`, which must be private: Ray gives its own folders mode 0777. It
    starts with a worker per core when trials use at least half of the machine's; `cores` is how many they
    use. `options` go to ray.init.
    """
    with use_private_token(folder):
        try:
            with use_lean_node(), set_environment({RUN_FOLDER_VARIABLE: str(folder)}):
                system_config = make_system_config(cores)
                ray.init("local", _temp_dir=str(folder / "ray"), _system_config=system_config, **options)
            yield
        finally:
            ray.shutdown()


def make_system_config(cores: int) -> dict[str, Any]:
    """Ray's settings for an instance of which trials use `cores` cores."""
    # By default the node looks for its object store once a second; the store is there after milliseconds.
    fast_start = {
        "raylet_client_connect_timeout_milliseconds": 20,
        "raylet_client_num_connect_attempts": 1000,
    }
    # A worker per core imports what a trial needs while the driver still connects and imports. They are
    # started once, and none is ended as idle before its first trial: another would import it all again.
    prestarted_workers = {
        "preload_python_modules": ["memtune.ray_backend.trial_actor"],
        "enable_worker_prestart": True,
        "prestart_worker_first_driver": False,
        "idle_worker_killing_time_threshold_ms": WORKER_IDLE_TIMEOUT_MILLISECONDS,
    }
    return {**fast_start, **prestarted_workers} if 2 * cores >= (os.cpu_count() or 1) else fast_start
