"""Ray Tune as the executor of a study's trials."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from memtune.studies.executor import ExecutorRun


class RayExecutor:
    """Runs trials on a private Ray instance of this machine or on an existing cluster.

    Ray is imported by `connect`, which takes seconds, so that a study without trials to run starts at once.
    """

    def __init__(
        self, address: str | None = None, notify: Callable[[str], object] = lambda text: None
    ) -> None:
        """Without a cluster's `address` RAY_ADDRESS counts. `notify` prints which cluster runs the trials."""
        self._address, self._notify = address, notify
        self._connection = ExitStack()
        self._folder: Path | None = None

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        """Join the cluster, or start the private instance with the cores for so many trials."""
        hook = sys.excepthook
        # Imported here: Ray loads for seconds, which a study without trials left to run need not wait for.
        from memtune.ray_backend.ray_connection import connect_ray

        sys.excepthook = hook  # which the import of Ray replaces
        connection = connect_ray(self._address, cpus_per_trial, max_concurrent_trials, self._notify)
        self._folder = self._connection.enter_context(connection)

    def find_gpu_bytes(self) -> int | None:
        """Ask the nodes for the memory of their GPUs."""
        from memtune.ray_backend.cluster_nodes import find_smallest_gpu_bytes

        return find_smallest_gpu_bytes()

    def run_trials(self, run: ExecutorRun) -> None:
        """Run trials as Tune actors until the director has no more."""
        from memtune.ray_backend.tune_adapters import run_trials

        assert self._folder is not None, "connect comes first"
        run_trials(run, self._folder)

    def close(self) -> None:
        """End the private instance, or leave the cluster, and remove the run's temporary files."""
        self._connection.close()
