"""What trainers of networks and of models that count have in common: curve, best weights and usage."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from memtune.corpora.store.corpus import Corpus
from memtune.training.checkpoint import Checkpoint, CheckpointRecord, write_checkpoint
from memtune.training.devices import describe_environment, open_device
from memtune.training.training_loop import Position
from memtune.training.trial_config import TrialConfig
from memtune.training.trial_report import Report, find_best_report
from memtune.usage import Usage, UsageMeter


class TrainerBase(ABC):
    """One trial on a corpus and a device, with its reports and the weights of the best one."""

    def __init__(
        self, config: TrialConfig, corpus: Corpus, device: str = "cpu", meter: UsageMeter | None = None
    ) -> None:
        self.config = config
        self._meter = meter or UsageMeter()
        self.corpus = corpus
        self.device = open_device(device)
        self.identity = config.identity(corpus.digest)
        self.curve: list[Report] = []
        """The reports so far, oldest first."""
        self._best_weights: dict[str, Tensor] | None = None
        self._task = config.task.open(corpus, config.protocol)

    @abstractmethod
    def make_checkpoint(self) -> Checkpoint:
        """The trial's state. Raises TrialError after an interruption in the middle of a step."""

    def save(self, folder: Path) -> None:
        """Write a checkpoint to a folder; the files of an existing checkpoint are replaced."""
        write_checkpoint(self.make_checkpoint(), folder)

    @property
    def best(self) -> Report | None:
        """The report with the lowest cost; None before the first validation."""
        return find_best_report(self.curve)

    @property
    def tokens(self) -> int:
        """Predicted tokens trained on so far."""
        return self.curve[-1].tokens if self.curve else 0

    @property
    def usage(self) -> Usage:
        """What the trial has used so far."""
        return self._meter.measure(self.tokens)

    @property
    def is_finished(self) -> bool:
        """Whether the trial has ended; the last report of the curve holds the reason."""
        return bool(self.curve) and self.curve[-1].is_finished

    @property
    def _valid_costs(self) -> list[float]:
        """Costs of the validation reports, oldest first; lower is better."""
        return [report.cost for report in self.curve if report.cost is not None]

    def _add_report(self, report: Report, copy_weights: Callable[[], dict[str, Tensor]]) -> None:
        """Add a report; copy the weights if it is the best so far."""
        self.curve.append(report)
        if self.best is report:
            self._best_weights = copy_weights()

    def _make_record(self, position: Position, **state: Any) -> CheckpointRecord:
        """The record of the trial at a position, with the `state` of a training, by its fields."""
        return CheckpointRecord(
            config=self.config,
            identity=self.identity,
            corpus=self.corpus.name,
            corpus_digest=self.corpus.digest,
            vocabulary_size=len(self.corpus.vocabulary),
            position=position,
            curve=tuple(self.curve),
            versions=describe_environment(),
            usage=self.usage,
            **state,
        )
