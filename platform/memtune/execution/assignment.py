"""What a worker is told of its trial, and how it begins: new, or from the trial's newest checkpoint."""

import socket

import torch

from memtune.corpora import Corpus, open_corpus
from memtune.errors import CorpusError, StorageError, WorkerError
from memtune.execution.checkpoints import Checkpoints
from memtune.execution.fitting import tensors_fraction
from memtune.training import AnyLearner, TrialConfig, available_bytes, new_learner
from memtune.values import Value

__all__ = ["Assignment", "begin"]


class Assignment(Value):
    """What a worker is told: the configuration, and where everything is."""

    number: int
    identity: str
    config: TrialConfig
    corpus: str
    corpus_digest: str
    store: str
    checkpoints: str
    device: str = "cpu"
    threads: int = 1
    gpus: float = 0.0
    """GPUs the worker has, a share of one below 1."""
    checkpoint_seconds: float = 600.0
    """Between two checkpoints where reports are further apart."""


def begin(assignment: Assignment, checkpoints: Checkpoints) -> AnyLearner:
    """The learner of an assignment: from its newest checkpoint, or new.

    Raises WorkerError for what is no fault of the trial: a corpus or a storage that cannot be read from this
    node, or holds another content, or a GPU that was promised and is not visible. Raises CheckpointError when
    no checkpoint of several is whole. A worker with a share of a GPU keeps its tensors within that share.
    """
    try:
        if assignment.device == "cuda" and not torch.cuda.is_available():
            raise WorkerError(
                "this trial was promised a GPU and its worker sees none; check the driver on that node, "
                "or run with --gpus-per-trial 0"
            )
        if assignment.device == "cuda" and assignment.gpus < 1:
            fraction = tensors_fraction(assignment.gpus, available_bytes(torch.device("cuda")))
            torch.cuda.set_per_process_memory_fraction(fraction)
        torch.set_num_threads(assignment.threads)
        corpus = _open(assignment)
        found = checkpoints.restore(corpus, assignment.device)
    except (CorpusError, StorageError, WorkerError) as error:
        raise WorkerError(f"on {socket.gethostname()}: {error}") from error
    return found or new_learner(assignment.config, corpus, assignment.device)


def _open(assignment: Assignment) -> Corpus:
    corpus = open_corpus(assignment.corpus, assignment.store)
    if corpus.digest != assignment.corpus_digest:
        raise CorpusError(
            f'corpus "{assignment.corpus}" in {assignment.store} has digest {corpus.digest[:12]}, the study '
            f"was started on {assignment.corpus_digest[:12]}; start a new study for the new content"
        )
    return corpus
