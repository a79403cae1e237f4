"""A private Ray instance on one machine: only the processes that trials need, reachable by its user only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGHUP
from typing import Any

import ray

from memtune.ray_backend.compatibility import is_start_timeout, start_instance, use_lean_node
from memtune.ray_backend.instance_cleanup import RUN_FOLDER_VARIABLE
from memtune.ray_backend.private_token import set_environment, use_private_token
from memtune.retry import Backoff, retry
from memtune.stop_signals import start_processes_without

RETRY_SECONDS = 60.0
"""Ray gives up when a process of its takes 15 s to start, as on a busy machine; so long it is tried again."""


@contextmanager
def run_local_instance(folder: Path, cores: int, **options: Any) -> Iterator[None]:
    """Run a private Ray instance during the block and connect to it.

    Its session and token are in `folder`, which must be private: Ray gives its own folders mode 0777. It
    starts with a worker per core when trials use at least half of the machine's; `cores` is how many they
    use. `options` go to ray.init.
    """
    with use_private_token(folder):
        try:
            variables = {RUN_FOLDER_VARIABLE: str(folder), "PYTHONSAFEPATH": "1"}
            with use_lean_node(), set_environment(variables), start_processes_without(SIGHUP):
                is_half = 2 * cores >= (os.cpu_count() or 1)
                _start(folder / "ray", has_prestarted_workers=is_half, **options)
            yield
        finally:
            ray.shutdown()


def _start(folder: Path, **options: Any) -> None:
    def start() -> None:
        ray.shutdown()  # what is left of an attempt before
        start_instance(folder, **options)

    retry(start, is_start_timeout, Backoff(1.0, 1.0).next_pause, RETRY_SECONDS)
