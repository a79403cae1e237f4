"""The work of one worker on one trial: train to the next report or checkpoint, store it, report the curve.

An executor calls `TrialWorker.step` until the report says that the trial is finished. Every report carries
the whole curve, so that a report lost with a driver arrives again with the next one. Reports also come
between two milestones, after each checkpoint, which lets the driver distinguish slow workers from dead ones.
"""

import errno
import time
from collections.abc import Callable

from memtune.errors import MemtuneError, StorageError, WorkerError
from memtune.retry import Backoff, retry
from memtune.studies.assignment import Assignment, restore_or_create_trainer
from memtune.studies.checkpoint_store import Checkpoints
from memtune.training import AnyTrainer, Report
from memtune.usage import Usage, UsageMeter
from memtune.values import Value

__all__ = ["TrialWorker", "WorkerReport"]

MAX_UNSAVED_SECONDS = 10.0
"""A checkpoint is stored before a validation that follows on longer training: a worker that is told to stop
has seconds for it, and a validation that takes longer would lose that training each time."""
PERMISSION_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS)
MAX_WRITE_SECONDS = 600.0
"""A folder of checkpoints that cannot be written is waited for as long as an unavailable server."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0


class WorkerReport(Value):
    """What a worker reports after a step."""

    reports: tuple[Report, ...] = ()
    """The trial's whole curve."""
    tokens: int = 0
    """Predicted tokens trained on so far, also between two reports."""
    usage: Usage | None = None
    """What the trial has used so far; None before the worker has opened it."""
    remarks: tuple[str, ...] = ()
    error: str | None = None
    """A memtune error that ends the trial."""
    worker_fault: str | None = None
    """Why this worker cannot run the trial, although another worker may: corpus, storage or GPU."""
    is_finished: bool = False


class TrialWorker:
    """One assignment on this worker, restored from the trial's newest checkpoint at the first step."""

    def __init__(self, assignment: Assignment, node_type: str = "") -> None:
        """Read nothing yet: a fault of this node is a report, not an exception."""
        self._meter = UsageMeter(assignment.threads, assignment.gpus, node_type)
        self._assignment = assignment
        self._checkpoints = Checkpoints(assignment.checkpoint_root, assignment.identity)
        self._trainer: AnyTrainer | None = None

    def step(self, is_stopping: Callable[[], bool] = lambda: False) -> WorkerReport:
        """Train until the next report or checkpoint is due, or `is_stopping()`, and store a checkpoint.

        The first step of a restored trial with reports only reports them.

        Raises exceptions other than MemtuneError: the executor may retry the trial from its checkpoint.
        """
        error = worker_fault = None
        try:
            self._train(is_stopping)
        except WorkerError as fault:
            worker_fault = str(fault)
        except MemtuneError as problem:
            error = f"{type(problem).__name__}: {problem}"
        is_finished = self._trainer is not None and self._trainer.is_finished
        return WorkerReport(
            reports=tuple(self._trainer.curve) if self._trainer else (),
            tokens=self._trainer.tokens if self._trainer else 0,
            usage=self._trainer.usage if self._trainer else None,
            remarks=tuple(self._checkpoints.remarks),
            error=error,
            worker_fault=worker_fault,
            is_finished=is_finished or error is not None,
        )

    def _train(self, is_stopping: Callable[[], bool]) -> None:
        if self._trainer is None:
            self._trainer = restore_or_create_trainer(self._assignment, self._checkpoints, self._meter)
            if self._trainer.curve:
                # The last driver may have died before it decided on these reports. Training first would add
                # a report, and better weights, to a trial that the director stops at an earlier one.
                return
        if self._trainer.is_finished:
            return
        started = time.monotonic()
        is_validation_due = self._trainer.train_for(self._assignment.checkpoint_seconds, is_stopping)
        if is_validation_due and not is_stopping():
            if time.monotonic() - started > MAX_UNSAVED_SECONDS:
                self._save(self._trainer, is_stopping)
            self._trainer.advance()
        self._save(self._trainer, is_stopping)

    def _save(self, trainer: AnyTrainer, is_stopping: Callable[[], bool]) -> None:
        """Store a checkpoint. Waits for the permission to write; WorkerError when it does not come."""
        pauses = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        try:
            retry(
                lambda: self._checkpoints.save(trainer),
                lambda error: is_permission_error(error) and not is_stopping(),
                pauses.next_pause,
                MAX_WRITE_SECONDS,
            )
        except StorageError as error:
            if is_permission_error(error):  # no fault of the configuration: the trial stays open
                raise WorkerError(str(error)) from error
            raise


def is_permission_error(error: Exception) -> bool:
    """Whether files cannot be written because of their mode, or on a file system without writes."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in PERMISSION_ERRORS
