"""The interface between a study's driver and whatever runs its trials.

An executor takes assignments from the director and passes the workers' reports back to it. Ray Tune is one
executor (`ray_backend.ray_executor`); `in_process_executor` trains in the driver's own process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from memtune.studies.assignment import Assignment
from memtune.studies.definition.study_terms import Resources
from memtune.studies.director import Director
from memtune.studies.stop_request import StopRequest
from memtune.studies.trial import Trial


@dataclass(frozen=True)
class ExecutorRun:
    """What an executor needs to run the trials of one director."""

    director: Director
    make_assignment: Callable[[Trial], Assignment]
    resources: Resources
    average_gpus: float
    """GPUs that a trial requests on average."""
    stop: StopRequest
    """When set, the workers store a checkpoint and end within seconds; their trials stay open."""


class Executor(Protocol):
    """Runs trials. The driver calls every method from one thread, except `close`."""

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int) -> None:
        """Prepare to run trials; may be called before the first trial is known. Called once at most."""

    def find_gpu_bytes(self) -> int | None:
        """Memory of the smallest GPU that trials may run on, in bytes; None where there is no GPU."""

    def run_trials(self, run: ExecutorRun) -> None:
        """Run trials until the director has no more, or `run.stop` is set.

        Calls the director's `on_...` methods one at a time. Raises StudyError when no node can hold a trial,
        and ExecutorLostError when what runs the trials has died.
        """

    def close(self) -> None:
        """Release what `connect` acquired; does nothing without a `connect`. Called from any thread."""
