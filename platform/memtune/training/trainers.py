"""The trainer of a trial, gradient descent or counting, and the evaluation of a trained model."""

import time

import torch

from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus
from memtune.errors import CheckpointError
from memtune.models.architecture import Model
from memtune.tasks import ContinuousCache, LanguageModellingConfig, Metrics, TaskConfig, evaluate_with_cache
from memtune.training.checkpoint import Checkpoint
from memtune.training.counting_trainer import CountingTrainer
from memtune.training.gradient_trainer import GradientTrainer
from memtune.training.trial_config import TrialConfig
from memtune.usage import UsageMeter

MEASURED_SECONDS = 0.3
"""Of training for the cost of a configuration."""
VALIDATION_SHARE = 0.3
"""Seconds of a validated token, which needs no backward pass, divided by those of a trained one.

Measured: 0.27 (LSTM), 0.28 (attention) and 0.35 (mLSTM)."""
AnyTrainer = GradientTrainer | CountingTrainer


def create_trainer(
    config: TrialConfig, corpus: Corpus, device: str = "cpu", meter: UsageMeter | None = None
) -> AnyTrainer:
    """The trainer of a new trial; raises the errors of `GradientTrainer`."""
    trainer_class = GradientTrainer if config.model.is_trained_by_gradient else CountingTrainer
    return trainer_class(config, corpus, device, meter)


def restore_trainer(
    checkpoint: Checkpoint, corpus: Corpus, device: str = "cpu", meter: UsageMeter | None = None
) -> AnyTrainer:
    """The trainer that wrote a checkpoint.

    Raises CheckpointError for one of another corpus, or of another configuration than its tensors.
    """
    checkpoint.check_fit(corpus)
    trainer = create_trainer(checkpoint.record.config, corpus, device, meter)
    trainer.load(checkpoint)
    return trainer


def measure_seconds_per_token(config: TrialConfig, corpus: Corpus) -> float:
    """Core seconds per predicted token of training on this machine, with its share of the validations.

    Counting costs nothing here. Threads are those that torch has. Training is measured; a validated token is
    taken to cost a share of a trained one.
    """
    if config.training is None:
        return 0.0
    trainer = GradientTrainer(config, corpus)
    trainer.train_for(0.0)  # the first step is slower than the others
    started, before = time.process_time(), trainer.tokens
    trainer.train_for(MEASURED_SECONDS)
    trained = (time.process_time() - started) / max(1, trainer.tokens - before)
    epoch_tokens = trainer.epoch_tokens
    validated = epoch_tokens * corpus["valid"].token_count / corpus["train"].token_count
    reported = min(config.training.report_every or epoch_tokens, config.count_tokens(lambda: epoch_tokens))
    return trained * (1 + VALIDATION_SHARE * validated / reported)


def evaluate(
    model: Model,
    corpus: Corpus,
    protocol: Protocol,
    split: str,
    device: str | torch.device = "cpu",
    cache: ContinuousCache | None = None,
    task: TaskConfig | None = None,
) -> Metrics:
    """The metrics of a model on a split read through a protocol.

    Every prediction of the task (default: language modelling) counts once. The result does not depend on the
    protocol's batch size. With a cache the split is read in the order of its text, and questions are answered
    without the cache. Raises CheckpointError when the vocabularies differ in size, and ConfigurationError for
    a cache on a model without hidden states.
    """
    if model.vocabulary_size != len(corpus.vocabulary):
        raise CheckpointError(
            f"the model has a vocabulary of {model.vocabulary_size} words, "
            f'corpus "{corpus.name}" of {len(corpus.vocabulary)}; use the corpus it was trained on'
        )
    opened = (task or LanguageModellingConfig()).open(corpus, protocol)
    if cache is None:
        return opened.evaluate(model.to(device), split, device)
    language_model = model.require_language_model("a cache")
    metrics = evaluate_with_cache(language_model.to(device), corpus, protocol, split, cache, device)
    return opened.add_accuracy(metrics, model, split, device)
