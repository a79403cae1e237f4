"""The interface between a study's driver and whatever runs its trials.

An executor takes assignments from the director and passes the workers' reports back to it. Ray Tune is one
executor (`ray_backend.ray_executor`); `InProcessExecutor` trains in the driver's own process.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Protocol, runtime_checkable

from memtune.stop_signals import STOP_SIGNALS, is_ignored, release_closed_terminal
from memtune.studies.definition.study_terms import Resources
from memtune.studies.director import DirectedTrial, Director
from memtune.studies.trial_worker import Assignment, TrialWorker

STOP_SECONDS = 5.0
"""Seconds in which the workers of a run store a checkpoint and end; those that take longer are killed."""
STOPPING_MESSAGE = (
    "stopping: trials store a checkpoint; press Ctrl-C (or a notebook's stop button) again to end at once"
)


class StopRequest:
    """Whether the workers of a run should store a checkpoint and end; their trials stay open."""

    def __init__(self, is_budget_spent: Callable[[], bool] = lambda: False) -> None:
        """`is_budget_spent` is asked after every training step of a trial in the driver's process."""
        self._is_budget_spent = is_budget_spent
        self.signal: int | None = None
        """The first signal that set the request; None without one."""

    @property
    def is_signalled(self) -> bool:
        """Whether a signal set the request."""
        return self.signal is not None

    @property
    def is_set(self) -> bool:
        """Whether the run should end."""
        return self.is_signalled or self._is_budget_spent()

    @contextmanager
    def catch_signals(self, notify: Callable[[str], object]) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and SIGHUP set the request in the block; a second one raises KeyboardInterrupt.

        SIGHUP means that the terminal was closed: what is printed from then on is discarded, and another
        SIGHUP is ignored, also after the block. Does nothing outside the main thread, where Python installs
        no signal handlers. A signal that the process ignores stays ignored, as under `nohup`; Ctrl-C is
        always caught.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle_signal(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGHUP:
                release_closed_terminal()
            elif self.is_signalled:
                raise KeyboardInterrupt
            self.signal = self.signal or number
            # In a thread, because the signal may have interrupted code that holds the console's lock.
            threading.Thread(target=notify, args=(STOPPING_MESSAGE,), name="memtune-stopping").start()

        previous = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        caught = [n for n in STOP_SIGNALS if n is signal.SIGINT or not is_ignored(n)]
        for number in caught:
            signal.signal(number, handle_signal)
        try:
            yield
        finally:
            for number in caught:
                if number is signal.SIGINT or not is_ignored(number):
                    signal.signal(number, previous[number])


@dataclass(frozen=True)
class ExecutorRun:
    """What an executor needs to run the trials of one director."""

    director: Director
    make_assignment: Callable[[DirectedTrial], Assignment]
    resources: Resources
    average_gpus: float
    stop: StopRequest
    """When set, the workers store a checkpoint and end within seconds; their trials stay open."""


@runtime_checkable
class Executor(Protocol):
    """Runs trials. The driver calls every method from one thread, except `close`."""

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        """Prepare to run `max_concurrent_trials` at once, or as many as fit; called once at most."""

    def find_gpu_bytes(self) -> int | None:
        """Memory of the smallest GPU that trials may run on, in bytes; None where there is no GPU."""

    def run_trials(self, run: ExecutorRun) -> None:
        """Run trials until the director has no more, or `run.stop` is set.

        Calls the director's `on_...` methods one at a time. Raises StudyError when no node can hold a trial,
        and ExecutorLostError when what runs the trials has died.
        """

    def close(self) -> None:
        """Release what `connect` acquired; does nothing without a `connect`. Called from any thread."""


class InProcessExecutor:
    """Trains each trial to its end before it starts the next. Exceptions of a trial end the study."""

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int | None) -> None:
        """Nothing to connect to."""

    def find_gpu_bytes(self) -> int | None:
        """Trials use the whole GPU of this process, so no share of one needs to be computed."""
        return None

    def run_trials(self, run: ExecutorRun) -> None:
        """Run the director's trials in order; a stop leaves the current one open with a checkpoint."""
        while not run.stop.is_set and (trial := run.director.take_next_trial()):
            _run_trial(run, trial)

    def close(self) -> None:
        """Nothing to release."""


def _run_trial(run: ExecutorRun, trial: DirectedTrial) -> None:
    """Run one trial until it ends, meets a fault of the environment, or `run.stop` is set."""
    number = trial.proposal.number
    worker = TrialWorker(run.make_assignment(trial))
    run.director.on_started(number)
    while not run.stop.is_set:
        run.director.check()
        report = worker.step(lambda: run.stop.is_set)
        continues = run.director.on_worker_report(number, report)
        if (fault := report.environment_fault) is not None:
            run.director.on_environment_fault(number, fault)
            return
        if report.is_finished or not continues:
            run.director.on_ended(number)
            return
