"""Training of a network from one report to the next, with exact resumption between any two steps.

A trainer depends only on its configuration, its corpus and its checkpoint. The order of the data is a
function of (seed, epoch), the learning rate is a function of the position and the curve, and dropout uses
random states that belong to the trial. On a CPU a trial that resumes from any of its checkpoints therefore
ends with the same bits as an uninterrupted one.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf, isfinite

from torch import Tensor
from typing_extensions import override

from memtune.corpora.store.corpus import Corpus
from memtune.errors import CheckpointError
from memtune.models.architecture import Model
from memtune.tasks import Metrics, build_task_model, perplexity
from memtune.training import memory_footprint
from memtune.training.checkpoint import MODEL_FILE, TRAINER_STATE_FILE, Checkpoint, join_groups, split_groups
from memtune.training.memory_footprint import keep_freed_memory
from memtune.training.optimisation.matmul_backend import select_backend
from memtune.training.optimisation.width_scaling import scale_to_width
from memtune.training.trainer_base import TrainerBase
from memtune.training.training_loop import IntervalRecord, ReportInterval, TrainingLoop, TrainingSession
from memtune.training.trial_config import TrialConfig
from memtune.training.trial_report import Progress, Report, find_divergence, find_stall
from memtune.training.weight_files import copy_weights, load_weights
from memtune.trial_state import StopReason, TrialEnd
from memtune.usage import UsageMeter


def build_trial_model(config: TrialConfig, vocabulary_size: int) -> tuple[Model, dict[str, float]]:
    """The model, and the factors of learning rates by parameter; there are none without a base width."""
    model = build_task_model(config.task, config.model, vocabulary_size, config.seed)
    if config.base_model is None:
        return model, {}
    base = build_task_model(config.task, config.base_model, vocabulary_size, config.seed)
    return model, scale_to_width(model, base)


class GradientTrainer(TrainerBase):
    """Trains a trial's model by gradient descent.

    `device` is "cpu" or "cuda" ("cuda:1" and so on). The caller sets torch's number of threads. Raises
    ConfigurationError for a setting that the device does not support, and TrialError when memory runs out.
    """

    def __init__(
        self, config: TrialConfig, corpus: Corpus, device: str = "cpu", meter: UsageMeter | None = None
    ) -> None:
        super().__init__(config, corpus, device, meter)
        self._interval: ReportInterval | None = None
        self._session = TrainingSession(config.seed, self.device)
        self._kernels = None
        if self.device.type == "cpu":
            keep_freed_memory()
            self._kernels = select_backend().kernels
        with self._explain_memory_errors():
            built, rate_scales = build_trial_model(config, len(corpus.vocabulary))
            self._task.initialise_model(built)
            self.model: Model = built.to(self.device)
            self._loop = TrainingLoop(
                config.gradient_training, self._task, self.model, config.seed, self.device, rate_scales
            )
        memory_footprint.reset_peak_memory(self.device)

    @property
    @override
    def tokens(self) -> int:
        """Predicted tokens trained on so far."""
        return self._loop.position.tokens

    @property
    def epoch_tokens(self) -> int:
        """Predicted tokens of an epoch."""
        return self._task.epoch_tokens

    def advance(self, progress: Callable[[Progress], None] | None = None) -> Report:
        """Train to the next milestone, evaluate on the validation split and return the report.

        A finished trainer returns its last report again. `progress` is called at most four times a second.
        Divergence ends the trial; the report holds the reason and no validation.
        Raises TrialError with a batch size that would fit when memory runs out.
        """
        if self.is_finished:
            return self.curve[-1]
        interval = self._make_current_interval()
        with self._explain_memory_errors(), self._session.run_block():
            problem = self._loop.run(interval, inf, self._valid_costs, progress, lambda: False)
            metrics = None if problem else self._evaluate()
        if metrics is not None and (problem := find_divergence(metrics, self._task.outcome_count)):
            metrics = None
        self._add_report(self._build_report(interval, metrics, problem), self._copy_evaluation_weights)
        self._loop.on_validation(self._valid_costs)
        self._interval = None
        return self.curve[-1]

    def train_for(self, seconds: float, is_stopping: Callable[[], bool] = lambda: False) -> bool:
        """Train for about `seconds`, at most to the next milestone; returns whether only evaluation is left.

        `is_stopping` is asked after each step; when it returns True the training ends early. The trainer can
        be saved afterwards; a trial resumed from there ends with the same bits.
        """
        if self.is_finished:
            return True
        interval = self._make_current_interval()
        with self._explain_memory_errors(), self._session.run_block():
            problem = self._loop.run(interval, seconds, self._valid_costs, None, is_stopping)
        return problem is not None or self.tokens >= interval.record.milestone

    def _explain_memory_errors(self) -> AbstractContextManager[None]:
        return memory_footprint.explain_memory_errors(self.config, self.corpus, self.device)

    def _make_current_interval(self) -> ReportInterval:
        """The interval up to the next report; a new interval after a report."""
        if self._interval is None:
            if every := self.config.gradient_training.report_every:
                due = (self.tokens // every + 1) * every
            else:
                due = (self._loop.position.epoch + 1) * self._task.epoch_tokens
            record = IntervalRecord(milestone=min(due, self._loop.budget_tokens))
            self._interval = ReportInterval(record, self.device)
        return self._interval

    def _evaluate(self) -> Metrics:
        with self._loop.updater.use_evaluation_weights():
            return self._task.evaluate(self.model, "valid", self.device)

    def _copy_evaluation_weights(self) -> dict[str, Tensor]:
        with self._loop.updater.use_evaluation_weights():
            return copy_weights(self.model)

    def _build_report(self, interval: ReportInterval, metrics: Metrics | None, problem: str | None) -> Report:
        peak_before = self.curve[-1].peak_memory_bytes if self.curve else 0
        train_loss, usage = interval.mean_loss(), self.usage
        return Report(
            tokens=self.tokens,
            epoch=self.tokens / self._task.epoch_tokens,
            train_loss=_finite_or_none(train_loss),
            train_perplexity=_finite_or_none(perplexity(train_loss)),
            valid_loss=metrics and _finite_or_none(metrics.loss),
            valid_perplexity=metrics and _finite_or_none(metrics.perplexity),
            valid_accuracy=metrics and metrics.accuracy,
            objective=self._task.objective,
            gradient_norm=_finite_or_none(interval.mean_gradient_norm()),
            learning_rate=interval.record.learning_rate,
            tokens_per_second=interval.tokens_per_second(),
            seconds=self._session.elapsed_seconds,
            peak_memory_bytes=max(peak_before, memory_footprint.measure_peak_bytes(self.device)),
            end=self._find_end(problem, metrics),
            kernels=self._kernels,
            cpu_seconds=usage.cpu_seconds,
            gpu_seconds=usage.gpu_seconds,
        )

    def _find_end(self, problem: str | None, metrics: Metrics | None) -> TrialEnd | None:
        """Why the trial ends with this report; None when it continues."""
        if metrics is None:
            return TrialEnd(reason=StopReason.DIVERGED, detail=f"diverged: {problem}")
        if self.tokens >= self._loop.budget_tokens:
            return TrialEnd(reason=StopReason.BUDGET)
        return find_stall(
            [*self._valid_costs, metrics.cost(self._task.objective)],
            self.config.gradient_training.patience,
        )

    @override
    def make_checkpoint(self) -> Checkpoint:
        self._session.check_uninterrupted()
        record = self._make_record(
            self._loop.position,
            scaler=self._loop.updater.scaler_state_dict(),
            seconds=self._session.elapsed_seconds,
            interval=self._interval.record if self._interval else None,
        )
        groups = self._loop.state_groups() | {
            "random": self._session.random_states(),
            "interval": self._interval.sums if self._interval else {},
        }
        return Checkpoint(record, copy_weights(self.model), self._best_weights, join_groups(groups))

    def load(self, checkpoint: Checkpoint) -> None:
        """Continue, on a CPU bit for bit; raises CheckpointError for tensors that do not fit the trial."""
        load_weights(self.model, checkpoint.model_weights, MODEL_FILE)
        record, groups = checkpoint.record, split_groups(checkpoint.trainer_state)
        try:
            self._loop.load_state(record.position, groups, record.scaler)
            self._session.load_random_states(groups.get("random", {}))
            self._session.elapsed_seconds = record.elapsed_seconds
            self._meter.restore(record.usage, self.tokens)
            if record.interval is not None:
                self._interval = ReportInterval(record.interval, self.device, groups["interval"])
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            # The tensors have other names, shapes or types than this trainer writes.
            raise CheckpointError(f"{TRAINER_STATE_FILE} does not fit its trial: {error}") from None
        self.curve, self._best_weights = list(record.curve), checkpoint.best_weights
        self._loop.on_validation(self._valid_costs)


def _finite_or_none(value: float) -> float | None:
    return value if isfinite(value) else None
