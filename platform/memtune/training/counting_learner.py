"""A trial of a model that counts: one reading of the training text, one report, and it is over.

It answers what a `Learner` answers, so whoever trains, searches and records trials need not tell the two
apart.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from memtune.corpora.protocols import Plan, TreeProtocol
from memtune.corpora.store import Corpus
from memtune.errors import TrialError
from memtune.models import CountingConfig
from memtune.models.interface import Model
from memtune.tasks import build, open_task
from memtune.training import memory
from memtune.training.checkpoint import (
    Checkpoint,
    Position,
    Record,
    check_origin,
    read_checkpoint,
    write_checkpoint,
)
from memtune.training.configuration import TrialConfig
from memtune.training.devices import find_device
from memtune.training.reports import Progress, Report, best_report
from memtune.training.weights import copy_weights, load_weights

__all__ = ["CountingLearner"]

READ_TOKENS = 2**20
"""Tokens that the training text is read by."""


class CountingLearner:
    """A trial that counts. Contexts begin anew where the protocol lets a text begin.

    Raises what a `Learner` raises.
    """

    def __init__(self, config: TrialConfig, corpus: Corpus, device: str = "cpu") -> None:
        assert isinstance(config.model, CountingConfig), "a network has a learner of its own"
        self.config = config
        self.corpus = corpus
        self.device = find_device(device)
        self.identity = config.identity(corpus.digest)
        self.curve: list[Report] = []
        self.best: Report | None = None
        self.model: Model = build(config.task, config.model, len(corpus.vocabulary), config.seed)
        self._fit = config.model.fit
        self._task = open_task(config.task, corpus, config.protocol)
        memory.forget_peak(self.device)

    @property
    def tokens(self) -> int:
        """Predicted tokens counted so far: none or all."""
        return self.curve[-1].tokens if self.curve else 0

    @property
    def finished(self) -> bool:
        """Whether the text is counted."""
        return bool(self.curve)

    def advance(self, progress: Callable[[Progress], None] | None = None) -> Report:
        """Count the training text and evaluate on the validation split; once finished, that report.

        `progress` is not called: nothing is known between the two. Raises TrialError when memory runs out.
        """
        if self.finished:
            return self.curve[-1]
        started = time.perf_counter()
        assert not isinstance(self.config.protocol, TreeProtocol), "what counts reads a text in its order"
        plan = self.config.protocol.evaluation_plan(self.corpus["train"], READ_TOKENS)
        try:
            fitted = self._fit(*_text(plan), len(self.corpus.vocabulary))
        except MemoryError:
            model = self.config.model
            raise TrialError(
                f"out of memory counting {plan.token_count:,} tokens for {model.family} {model.describe()}; "
                "take a lower order"
            ) from None
        self.model = fitted.to(self.device)
        self.curve = [self._report(plan.token_count, started, time.perf_counter())]
        self.best = best_report(self.curve)
        return self.curve[-1]

    def train_for(self, seconds: float) -> bool:
        """Nothing can be kept of half a count, so `advance` is called at once."""
        return True

    def _report(self, tokens: int, started: float, counted: float) -> Report:
        metrics = self._task.evaluate(self.model, "valid", self.device)
        return Report(
            tokens=tokens,
            epoch=1.0,
            train_loss=None,
            train_perplexity=None,
            valid_loss=metrics.loss,
            valid_perplexity=metrics.perplexity,
            valid_accuracy=metrics.accuracy,
            objective=self._task.objective,
            gradient_norm=None,
            learning_rate=None,
            tokens_per_second=tokens / (counted - started),
            seconds=time.perf_counter() - started,
            peak_memory_bytes=memory.peak_bytes(self.device),
            finished=True,
            reason="budget",
        )

    def save(self, folder: Path) -> None:
        """Write a checkpoint to a folder, whole or not at all; the tables are in best.safetensors alone."""
        best = copy_weights(self.model) if self.finished else None
        write_checkpoint(Checkpoint(self._record(), {}, best, {}), folder)

    def _record(self) -> Record:
        return Record(
            config=self.config,
            identity=self.identity,
            corpus=self.corpus.name,
            corpus_digest=self.corpus.digest,
            vocabulary_size=len(self.corpus.vocabulary),
            position=Position(epoch=int(self.finished), tokens=self.tokens),
            curve=tuple(self.curve),
            scaler=None,
            versions={"torch": torch.__version__},
        )

    @classmethod
    def restore(cls, folder: Path, corpus: Corpus, device: str = "cpu") -> Self:
        """The learner of a checkpoint; a CheckpointError names what is wrong with it."""
        checkpoint = read_checkpoint(folder)
        check_origin(checkpoint.record, corpus, folder)
        learner = cls(checkpoint.record.config, corpus, device)
        learner.curve = list(checkpoint.record.curve)
        learner.best = best_report(learner.curve)
        if checkpoint.best is not None:
            load_weights(learner.model, checkpoint.best, folder)
            learner.model.to(learner.device)
        return learner


def _text(plan: Plan) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The tokens that a plan predicts, one batch after the other, and where a text begins."""
    rows, starts, read = [], [], 0
    for index in range(len(plan)):
        batch = plan.batch(index)
        assert batch.mask_BT is None, "an evaluation holds no padding"
        targets_BT = batch.targets_BT.numpy()
        if not batch.carried:
            starts.append(read + np.arange(0, targets_BT.size, targets_BT.shape[1]))
        rows.append(targets_BT.ravel())
        read += targets_BT.size
    return np.concatenate(rows), np.concatenate(starts)
