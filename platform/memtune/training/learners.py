"""Who trains a trial: a network descends a gradient, an n-gram model counts; chosen here and nowhere else."""

from pathlib import Path

from memtune.corpora.store import Corpus
from memtune.models import CountingConfig
from memtune.training.checkpoint import read_record
from memtune.training.configuration import TrialConfig
from memtune.training.counting_learner import CountingLearner
from memtune.training.learner import Learner

__all__ = ["AnyLearner", "new_learner", "restore_learner"]

AnyLearner = Learner | CountingLearner


def new_learner(config: TrialConfig, corpus: Corpus, device: str = "cpu") -> AnyLearner:
    """A trial at its start. Raises what `Learner` raises."""
    return _kind(config)(config, corpus, device)


def restore_learner(folder: Path, corpus: Corpus, device: str = "cpu") -> AnyLearner:
    """The trial of a checkpoint, as it was when it was saved. Raises what `Learner.restore` raises."""
    return _kind(read_record(folder).config).restore(folder, corpus, device)


def _kind(config: TrialConfig) -> type[AnyLearner]:
    return CountingLearner if isinstance(config.model, CountingConfig) else Learner
