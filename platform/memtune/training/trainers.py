"""The trainer of a trial: gradient descent, or here counting; and the evaluation of a trained model."""

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from memtune.corpora.batching.protocols import Plan, Protocol
from memtune.corpora.store.corpus import Corpus
from memtune.errors import CheckpointError, TrialError
from memtune.models import CountingConfig
from memtune.models.architecture import Model
from memtune.tasks import (
    ContinuousCache,
    LanguageModellingConfig,
    Metrics,
    TaskConfig,
    build_task_model,
    evaluate_with_cache,
)
from memtune.training import memory_footprint
from memtune.training.checkpoint import BEST_WEIGHTS_FILE, Checkpoint
from memtune.training.gradient_trainer import GradientTrainer
from memtune.training.trainer_base import TrainerBase
from memtune.training.training_loop import Position
from memtune.training.trial_config import TrialConfig
from memtune.training.trial_report import Progress, Report
from memtune.training.weight_files import copy_weights, load_weights
from memtune.trial_state import StopReason, TrialEnd
from memtune.usage import UsageMeter

CHUNK_TOKENS = 2**20
"""Tokens of the training text in one batch."""


class CountingTrainer(TrainerBase):
    """Trains a trial whose model is fitted by counting. Contexts start where the protocol starts a text.

    Raises the errors of `GradientTrainer`.
    """

    def __init__(
        self, config: TrialConfig, corpus: Corpus, device: str = "cpu", meter: UsageMeter | None = None
    ) -> None:
        assert isinstance(config.model, CountingConfig), "GradientTrainer trains networks"
        super().__init__(config, corpus, device, meter)
        self.model: Model = build_task_model(config.task, config.model, len(corpus.vocabulary), config.seed)
        self._fit = config.model.fit
        memory_footprint.reset_peak_memory(self.device)

    def advance(self, progress: Callable[[Progress], None] | None = None) -> Report:
        """Count the training text, evaluate on the validation split and return the report.

        A finished trainer returns its report again. `progress` is never called, because counting has no loss
        before it ends. Raises TrialError when memory runs out.
        """
        if self.is_finished:
            return self.curve[-1]
        started = time.perf_counter()
        protocol = self.config.protocol.require_text("a family that counts")
        plan = protocol.evaluation_plan(self.corpus["train"], CHUNK_TOKENS)
        try:
            fitted = self._fit(*_read_text(plan), len(self.corpus.vocabulary))
        except MemoryError:
            model = self.config.model
            raise TrialError(
                f"out of memory counting {plan.token_count:,} tokens for {model.family} {model.describe()}; "
                "set a lower model.order"
            ) from None
        self.model = fitted.to(self.device)
        report = self._build_report(plan.token_count, started, time.perf_counter())
        self._add_report(report, lambda: copy_weights(self.model))
        return report

    def train_for(self, seconds: float, is_stopping: Callable[[], bool] = lambda: False) -> bool:
        """Return True at once; a checkpoint cannot hold partial counts, so `advance` does all of the work."""
        return True

    def _build_report(self, tokens: int, started: float, fit_ended: float) -> Report:
        metrics = self._task.evaluate(self.model, "valid", self.device)
        usage = self._meter.measure(tokens)
        return Report(
            tokens=tokens,
            epoch=1.0,
            valid_loss=metrics.loss,
            valid_perplexity=metrics.perplexity,
            valid_accuracy=metrics.accuracy,
            objective=self._task.objective,
            tokens_per_second=tokens / (fit_ended - started),
            seconds=time.perf_counter() - started,
            peak_memory_bytes=memory_footprint.measure_peak_bytes(self.device),
            end=TrialEnd(reason=StopReason.BUDGET),
            cpu_seconds=usage.cpu_seconds,
            gpu_seconds=usage.gpu_seconds,
        )

    @override
    def make_checkpoint(self) -> Checkpoint:
        position = Position(epoch=int(self.is_finished), tokens=self.tokens)
        # The best weights are the n-gram tables.
        return Checkpoint(self._make_record(position), {}, self._best_weights, {})

    def load(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of this trial; raises the errors of `GradientTrainer.load`."""
        self.curve, self._best_weights = list(checkpoint.record.curve), checkpoint.best_weights
        self._meter.restore(checkpoint.record.usage, self.tokens)
        if checkpoint.best_weights is not None:
            load_weights(self.model, checkpoint.best_weights, BEST_WEIGHTS_FILE)
            self.model.to(self.device)


def _read_text(plan: Plan) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The tokens that a plan predicts, in order, and the positions where texts start, both (tokens,)."""
    rows, starts, token_count = [], [], 0
    for index in range(len(plan)):
        batch = plan.batch(index)
        assert batch.mask_BT is None, "evaluation batches have no padding"
        targets_BT = batch.targets_BT.numpy()
        if not batch.carries_state:
            starts.append(token_count + np.arange(0, targets_BT.size, targets_BT.shape[1]))
        rows.append(targets_BT.ravel())
        token_count += targets_BT.size
    return np.concatenate(rows), np.concatenate(starts)


MEASURED_SECONDS = 0.3
"""Of training for the cost of a configuration."""
UNREACHED_TOKENS = 2**62
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
    """The trainer of a checkpoint; raises CheckpointError for another corpus or tensors that do not fit."""
    checkpoint.check_fit(corpus)
    trainer = create_trainer(checkpoint.record.config, corpus, device, meter)
    trainer.load(checkpoint)
    return trainer


def measure_seconds_per_token(config: TrialConfig, corpus: Corpus, device: str = "cpu") -> float:
    """Core seconds per predicted token of training on this machine, with its share of the validations.

    Counting costs nothing here. Threads are those that torch has; on a GPU, one core drives it. Training is
    measured; a validated token is taken to cost a share of a trained one. Raises the errors of
    `GradientTrainer`.
    """
    if config.training is None:
        return 0.0
    # A report or the end of the budget would end the measurement, which may then have no step.
    endless = {"epochs": None, "tokens": UNREACHED_TOKENS, "report_every": UNREACHED_TOKENS}
    training = config.training.model_copy(update=endless)
    trainer = GradientTrainer(config.model_copy(update={"training": training}), corpus, device)
    measure, slow_steps = (time.process_time, 1) if device == "cpu" else (time.perf_counter, 2)
    for _ in range(slow_steps):  # the first one, and the one that captures a CUDA graph
        trainer.train_for(0.0)
    started, before = measure(), trainer.tokens
    trainer.train_for(MEASURED_SECONDS)
    trained = (measure() - started) / max(1, trainer.tokens - before)
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
