"""The assignment of a trial to a worker, and the worker's trainer: new, or from the newest checkpoint."""

from typing import Annotated, Any

import torch
from pydantic import BeforeValidator

from memtune.corpora import Corpus, open_corpus
from memtune.errors import CorpusError, PluginError, WorkerError
from memtune.plugins import PluginSource, load_sources
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.definition.gpu_share import compute_tensor_fraction
from memtune.training import AnyTrainer, TrialConfig, create_trainer, measure_available_bytes
from memtune.usage import UsageMeter
from memtune.values import Value


def _dump_config(config: object) -> object:
    return config.model_dump(mode="json") if isinstance(config, TrialConfig) else config


class Assignment(Value):
    """A trial's configuration, and the places of its corpus and checkpoints."""

    number: int
    identity: str
    config: Annotated[dict[str, Any], BeforeValidator(_dump_config)]
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

    def open_config(self) -> TrialConfig:
        """The trial's configuration, after loading the sources that it needs.

        Raises PluginError for a source that cannot be loaded on this machine.
        """
        load_sources(self.sources)
        return TrialConfig.model_validate(self.config)


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
        config = assignment.open_config()
        corpus = _open_assigned_corpus(assignment)
        found = checkpoints.restore(corpus, assignment.device, meter)
    except (CorpusError, PluginError) as error:
        raise WorkerError(str(error)) from error
    return found or create_trainer(config, corpus, assignment.device, meter)


def _open_assigned_corpus(assignment: Assignment) -> Corpus:
    corpus = open_corpus(assignment.corpus, assignment.corpus_store)
    if corpus.digest != assignment.corpus_digest:
        raise CorpusError(
            f'corpus "{assignment.corpus}" in {assignment.corpus_store} has digest '
            f"{corpus.digest[:12]}, the study "
            f"was started on {assignment.corpus_digest[:12]}; start a new study for the new content"
        )
    return corpus
