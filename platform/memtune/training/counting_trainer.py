"""Training of an n-gram model: it counts the training text once, reports once, and is finished.

CountingTrainer has the methods of `GradientTrainer`, so callers can use either.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memtune.corpora.batching.protocols import Plan
from memtune.corpora.store.corpus import Corpus
from memtune.errors import TrialError
from memtune.models import CountingConfig
from memtune.models.architecture import Model
from memtune.tasks import build_task_model
from memtune.training import memory_footprint
from memtune.training.checkpoint import BEST_WEIGHTS_FILE, Checkpoint, write_checkpoint
from memtune.training.trainer_base import TrainerBase
from memtune.training.training_loop import Position
from memtune.training.trial_config import TrialConfig
from memtune.training.trial_report import Progress, Report, never_stop
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

    def train_for(self, seconds: float, is_stopping: Callable[[], bool] = never_stop) -> bool:
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

    def save(self, folder: Path) -> None:
        """Write a checkpoint to a folder; only best.safetensors holds the n-gram tables."""
        position = Position(epoch=int(self.is_finished), tokens=self.tokens)
        write_checkpoint(Checkpoint(self._make_record(position), {}, self._best_weights, {}), folder)

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
