"""The trainer of a trial: gradient descent for a network, counting for an n-gram model."""

import time
from pathlib import Path

from memtune.corpora.store.corpus import Corpus
from memtune.training.checkpoint import read_record
from memtune.training.counting_trainer import CountingTrainer
from memtune.training.gradient_trainer import GradientTrainer
from memtune.training.trial_config import TrialConfig
from memtune.usage import UsageMeter

MEASURED_SECONDS = 0.3
"""Of training for the cost of a configuration."""
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


def measure_seconds_per_token(config: TrialConfig, corpus: Corpus) -> float:
    """Core seconds of training per predicted token on this machine, without evaluations.

    Counting costs nothing here. Threads are those that torch has.
    """
    if config.training is None:
        return 0.0
    trainer = GradientTrainer(config, corpus)
    trainer.train_for(0.0)  # the first step is slower than the others
    started, before = time.process_time(), trainer.tokens
    trainer.train_for(MEASURED_SECONDS)
    return (time.process_time() - started) / max(1, trainer.tokens - before)


def _find_trainer_class(config: TrialConfig) -> type[AnyTrainer]:
    return GradientTrainer if config.model.is_trained_by_gradient else CountingTrainer
