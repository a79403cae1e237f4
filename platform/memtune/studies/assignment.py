"""The assignment of a trial to a worker, and the worker's trainer: new, or from the newest checkpoint."""

import socket

import torch

from memtune.corpora import Corpus, open_corpus
from memtune.errors import CorpusError, StorageError, WorkerError
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.gpu_share import compute_tensor_fraction
from memtune.training import AnyTrainer, TrialConfig, measure_available_bytes, new_trainer
from memtune.usage import UsageMeter
from memtune.values import Value

__all__ = ["Assignment", "restore_or_create_trainer"]


class Assignment(Value):
    """A trial's configuration, and the places of its corpus and checkpoints."""

    number: int
    identity: str
    config: TrialConfig
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

    Raises WorkerError for a fault of this worker: a corpus or a storage that cannot be read from this node or
    has other content, or a GPU that is not visible. Raises CheckpointError when all checkpoints are damaged
    or missing. The tensors of a worker with a share of a GPU stay within that share.
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
        corpus = _open_assigned_corpus(assignment)
        found = checkpoints.restore(corpus, assignment.device, meter)
    except (CorpusError, StorageError, WorkerError) as error:
        raise WorkerError(f"on {socket.gethostname()}: {error}") from error
    return found or new_trainer(assignment.config, corpus, assignment.device, meter)


def _open_assigned_corpus(assignment: Assignment) -> Corpus:
    corpus = open_corpus(assignment.corpus, assignment.corpus_store)
    if corpus.digest != assignment.corpus_digest:
        raise CorpusError(
            f'corpus "{assignment.corpus}" in {assignment.corpus_store} has digest '
            f"{corpus.digest[:12]}, the study "
            f"was started on {assignment.corpus_digest[:12]}; start a new study for the new content"
        )
    return corpus
