"""The trainer of a trial: gradient descent for a network, counting for an n-gram model."""

from pathlib import Path

from memtune.corpora.store.corpus import Corpus
from memtune.training.checkpoint import read_record
from memtune.training.counting_trainer import CountingTrainer
from memtune.training.gradient_trainer import GradientTrainer
from memtune.training.trial_config import TrialConfig
from memtune.usage import UsageMeter

AnyTrainer = GradientTrainer | CountingTrainer


def create_trainer(
    config: TrialConfig, corpus: Corpus, device: str = "cpu", meter: UsageMeter | None = None
) -> AnyTrainer:
    """The trainer of a new trial; raises the errors of `GradientTrainer`."""
    return _find_trainer_class(config)(config, corpus, device, meter)


def restore_trainer(
    folder: Path, corpus: Corpus, device: str = "cpu", meter: UsageMeter | None = None
) -> AnyTrainer:
    """The trainer of the trial in a checkpoint; raises the errors of `GradientTrainer.restore`."""
    return _find_trainer_class(read_record(folder).config).restore(folder, corpus, device, meter)


def _find_trainer_class(config: TrialConfig) -> type[AnyTrainer]:
    return GradientTrainer if config.model.is_trained_by_gradient else CountingTrainer
