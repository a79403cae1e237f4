"""One worker's assignment, and its work: train to the next report or checkpoint, store it, report the curve.

An executor calls `TrialWorker.step` until the report says that the trial is finished. The first report of a
worker carries the whole curve of its checkpoint, so that a report lost with a driver arrives again. Reports
also come between two milestones, after each checkpoint, which lets the driver distinguish slow workers from
dead ones.
"""

import errno
import socket
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator

from memtune.corpora import open_corpus
from memtune.errors import (
    CorpusError,
    MemtuneError,
    PluginError,
    WorkerError,
    explain_system_error,
    is_environment_fault,
)
from memtune.plugins import PluginSource, load_sources
from memtune.retry import Backoff, retry
from memtune.studies.checkpoint_store import Checkpoints
from memtune.training import AnyTrainer, Report, TrialConfig, create_trainer, measure_available_bytes
from memtune.training.memory_footprint import compute_tensor_fraction
from memtune.usage import Usage, UsageMeter
from memtune.values import Value, to_plain


class Assignment(Value):
    """A trial's configuration, and the places of its corpus and checkpoints."""

    number: int
    identity: str
    config: Annotated[dict[str, Any], BeforeValidator(to_plain)]
    """The trial's configuration as plain values: the worker makes a TrialConfig once it has the sources."""
    sources: tuple[PluginSource, ...] = ()
    """The sources of the families and other plug-ins that the configuration needs."""
    corpus: str
    corpus_digest: str
    corpus_store: str
    checkpoint_root: str
    device: str = "cpu"
    threads: int = 1
    gpus: float = 0.0
    """GPUs of the worker; a share of one GPU below 1."""
    checkpoint_seconds: float = 600.0
    """Seconds between two checkpoints where reports are further apart."""


def restore_or_create_trainer(
    assignment: Assignment, checkpoints: Checkpoints, meter: UsageMeter | None = None
) -> AnyTrainer:
    """The trainer of an assignment: from its newest checkpoint, or new.

    Raises StorageError for a storage that this worker cannot read, and WorkerError for its other faults: a
    corpus with other content, a GPU that is not visible, or a user's family that cannot be imported there.
    Raises CheckpointError when all checkpoints are damaged or missing. The tensors of a worker with a share
    of a GPU stay within that share.
    """
    try:
        if assignment.device == "cuda" and not torch.cuda.is_available():
            raise WorkerError(
                "this trial needs a GPU and its worker sees none; check the GPU driver on that node, "
                "or run with --gpus-per-trial 0"
            )
        if assignment.device == "cuda" and assignment.gpus < 1:
            fraction = compute_tensor_fraction(assignment.gpus, measure_available_bytes(torch.device("cuda")))
            torch.cuda.set_per_process_memory_fraction(fraction)
        torch.set_num_threads(assignment.threads)
        load_sources(assignment.sources)
        config = TrialConfig.model_validate(assignment.config)
        corpus = open_corpus(assignment.corpus, assignment.corpus_store)
        if corpus.digest != assignment.corpus_digest:
            raise CorpusError(
                f'corpus "{assignment.corpus}" in {assignment.corpus_store} has digest '
                f"{corpus.digest[:12]}, the study was started on {assignment.corpus_digest[:12]}; start a "
                "new study for the new content"
            )
        found = checkpoints.restore(corpus, assignment.device, meter)
    except (CorpusError, PluginError) as error:
        raise WorkerError(str(error)) from error
    return found or create_trainer(config, corpus, assignment.device, meter)


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
    """The new points of the trial's curve; all of them in the first report of a worker."""
    tokens: int = 0
    """Predicted tokens trained on so far, also between two reports."""
    usage: Usage | None = None
    """What the trial has used so far; None before the worker has opened it."""
    remarks: tuple[str, ...] = ()
    restored_tokens: int = 0
    """Predicted tokens of the checkpoint from which the worker started."""
    error: str | None = None
    """Why the trial cannot train as it is configured: it fails."""
    environment_fault: str | None = None
    """What a node or a storage cannot do now: the trial stays open and starts again.

    It comes without reports: what the worker trained is not stored."""
    is_finished: bool = False
    """Whether the worker is done with the trial."""


class TrialWorker:
    """One assignment on this worker, restored from the trial's newest checkpoint at the first step."""

    def __init__(self, assignment: Assignment, node_type: str = "") -> None:
        """Read nothing yet: a fault of this node is a report, not an exception."""
        self._meter = UsageMeter(assignment.threads, assignment.gpus, node_type)
        self._assignment = assignment
        self._checkpoints = Checkpoints(assignment.checkpoint_root, assignment.identity)
        self._trainer: AnyTrainer | None = None
        self._restored_tokens = self._sent_reports = 0

    def step(self, is_stopping: Callable[[], bool] = lambda: False) -> WorkerReport:
        """Train until the next report or checkpoint is due, or `is_stopping()`, and store a checkpoint.

        The first step of a restored trial with reports only reports them. Raises exceptions other than a
        MemtuneError and a fault of this machine: the executor may retry the trial from its checkpoint.
        """
        error: str | None = None
        try:
            self._train(is_stopping)
        except Exception as raised:
            if is_environment_fault(raised):
                fault = f"on {socket.gethostname()}: {explain_system_error(raised)}"
                remarks = tuple(self._checkpoints.remarks)
                return WorkerReport(remarks=remarks, environment_fault=fault, is_finished=True)
            if not isinstance(raised, MemtuneError):
                raise
            error = f"{type(raised).__name__}: {raised}"
        is_finished = self._trainer is not None and self._trainer.is_finished
        curve = self._trainer.curve if self._trainer else ()
        new, self._sent_reports = tuple(curve[self._sent_reports :]), len(curve)
        return WorkerReport(
            reports=new,
            tokens=self._trainer.tokens if self._trainer else 0,
            usage=self._trainer.usage if self._trainer else None,
            remarks=tuple(self._checkpoints.remarks),
            restored_tokens=self._restored_tokens,
            error=error,
            is_finished=is_finished or error is not None,
        )

    def _train(self, is_stopping: Callable[[], bool]) -> None:
        if self._trainer is None:
            self._trainer = restore_or_create_trainer(self._assignment, self._checkpoints, self._meter)
            self._restored_tokens = self._trainer.tokens
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
        """Store a checkpoint. Waits for the permission to write, and raises StorageError without it."""
        pauses = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        retry(
            lambda: self._checkpoints.save(trainer),
            lambda error: is_permission_error(error) and not is_stopping(),
            pauses.next_pause,
            MAX_WRITE_SECONDS,
        )


def is_permission_error(error: Exception) -> bool:
    """Whether files cannot be written because of their mode, or on a file system without writes."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in PERMISSION_ERRORS
