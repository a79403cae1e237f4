"""What a worker is told of its trial, and how it begins: new, or from the trial's newest checkpoint."""

import torch

from memtune.corpora import open_corpus
from memtune.errors import CorpusError, TrialError
from memtune.execution.checkpoints import Checkpoints
from memtune.training import AnyLearner, TrialConfig, new_learner
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


def begin(assignment: Assignment) -> AnyLearner:
    """The learner of an assignment: from its newest checkpoint, or new.

    Raises CorpusError when the store holds another content under the corpus's name, TrialError when a GPU was
    promised and none is visible.
    """
    if assignment.device == "cuda" and not torch.cuda.is_available():
        raise TrialError(
            "this trial was promised a GPU and its worker sees none; check the driver on that node, "
            "or run with --gpus-per-trial 0"
        )
    torch.set_num_threads(assignment.threads)
    corpus = open_corpus(assignment.corpus, assignment.store)
    if corpus.digest != assignment.corpus_digest:
        raise CorpusError(
            f'corpus "{assignment.corpus}" in {assignment.store} has digest {corpus.digest[:12]}, the study '
            f"was started on {assignment.corpus_digest[:12]}; start a new study for the new content"
        )
    checkpoints = Checkpoints(assignment.checkpoints, assignment.identity)
    found = checkpoints.restore(corpus, assignment.device)
    return found or new_learner(assignment.config, corpus, assignment.device)
