"""One trial's learning: from milestone to milestone, interruptible between two steps, exact when it goes on.

Everything a learner depends on is in its configuration, its corpus and its checkpoint: the order of the data
is a function of (seed, epoch), the learning rate of the position and the curve, and dropout draws from a
random state of the learner's own. So on a CPU a trial resumed from any of its checkpoints ends with the bits
of one that ran through.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from memtune.corpora.store import Corpus
from memtune.errors import TrialError
from memtune.models.interface import Model, State
from memtune.tasks import Batch, Metrics, Plan, build, open_task, perplexity
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
from memtune.training.ending import hopeless, stalled
from memtune.training.interval import Interval
from memtune.training.products import take_fastest_route
from memtune.training.randomness import RandomStates
from memtune.training.reports import Progress, Report, best_report
from memtune.training.schedules import Standing
from memtune.training.updates import Updates
from memtune.training.weights import copy_weights, load_weights

__all__ = ["Learner"]

PROGRESS_SECONDS = 0.25
STEPS_UNSEEN = 50
"""Steps between two looks for a NaN on a GPU, where each look makes the host wait."""


class Learner:
    """A trial that learns.

    `device` is "cpu" or "cuda" ("cuda:1" and so on); the number of threads is torch's, as the caller set it.
    Raises a ConfigurationError for what the device cannot do, and a TrialError when memory runs out.
    """

    def __init__(self, config: TrialConfig, corpus: Corpus, device: str = "cpu") -> None:
        self.config = config
        self.corpus = corpus
        self.device = find_device(device)
        self.identity = config.identity(corpus.digest)
        self.curve: list[Report] = []
        self.best: Report | None = None
        self._task = open_task(config.task, corpus, config.protocol)
        self._position = Position()
        self._plan = self._epoch_plan(0)
        self._budget = config.descent.tokens or ceil((config.descent.epochs or 0) * self._plan.token_count)
        self._state: State | None = None
        self._best_weights: dict[str, Tensor] | None = None
        self._random_states = RandomStates(config.seed, self.device)
        self._interval: Interval | None = None
        self._seconds = 0.0
        self._interrupted = False
        self._kernels = take_fastest_route().kernels if self.device.type == "cpu" else None
        with self._memory_explained():
            built = build(config.task, config.model, len(corpus.vocabulary), config.seed)
            self._task.prepare(built)
            self.model: Model = built.to(self.device)
            self._updates = Updates(config.descent, self.model, self.device)
        self._task.enter_epoch(self.model, 0)
        memory.forget_peak(self.device)

    @property
    def tokens(self) -> int:
        """Predicted tokens trained on so far."""
        return self._position.tokens

    @property
    def finished(self) -> bool:
        """Whether the trial is over; the last report of the curve says why."""
        return bool(self.curve) and self.curve[-1].finished

    def advance(self, progress: Callable[[Progress], None] | None = None) -> Report:
        """Train to the next milestone and evaluate on the validation split; once finished, the last report.

        `progress` is called a few times a second at most. Divergence is a finished report with its reason; a
        TrialError is raised when memory runs out, with what would fit.
        """
        if self.finished:
            return self.curve[-1]
        with self._under_way():
            problem = self._train(self._current_interval(), inf, progress)
            metrics = None if problem else self._evaluate()
        self._note(self._report(self._current_interval(), metrics, problem))
        self._interval = None
        return self.curve[-1]

    def train_for(self, seconds: float) -> bool:
        """Train for about so long, at most to the next milestone; whether `advance` has but to evaluate.

        When it returns, the learner may be saved: a trial taken up there ends with the same bits.
        """
        if self.finished:
            return True
        interval = self._current_interval()
        with self._under_way():
            problem = self._train(interval, seconds, None)
        return problem is not None or self.tokens >= interval.milestone

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Count the time, draw from the trial's random states, and tell an interruption from an end."""
        if self._interrupted:
            raise TrialError("training was interrupted in the middle of a step; restore the last checkpoint")
        self._interrupted = True
        started = time.perf_counter()
        with self._memory_explained(), self._random_states.in_use():
            yield
        self._seconds += time.perf_counter() - started
        self._interrupted = False

    def _current_interval(self) -> Interval:
        """The interval to the next report, begun if need be."""
        if self._interval is None:
            self._interval = Interval(self.device, self._milestone())
        return self._interval

    def _evaluate(self) -> Metrics:
        with self._updates.judged():
            return self._task.evaluate(self.model, "valid", self.device)

    def _milestone(self) -> int:
        """Tokens at which the next report is due."""
        every = self.config.descent.report_every
        if every is None:
            due = (self._position.epoch + 1) * self._plan.token_count
        else:
            due = (self.tokens // every + 1) * every
        return min(due, self._budget)

    def _train(
        self, interval: Interval, seconds: float, progress: Callable[[Progress], None] | None
    ) -> str | None:
        """Steps for so long, at most up to the milestone; the problem that ended them early."""
        began = shown = time.perf_counter()
        look_every = 1 if self.device.type == "cpu" else STEPS_UNSEEN
        problem = interval.problem()
        self.model.train()
        with interval.timed():
            while self.tokens < interval.milestone and problem is None:
                self._step(interval)
                if interval.steps % look_every == 0:
                    problem = interval.problem()
                now = time.perf_counter()
                if progress is not None and now - shown > PROGRESS_SECONDS:
                    progress(self._progress(interval))
                    shown = now
                if now - began >= seconds:
                    break
        return problem or interval.problem()

    def _step(self, interval: Interval) -> None:
        batch = self._plan.batch(self._position.batch).to(self.device)
        with self._updates.forward():
            nats, self._state = self._task.loss(self.model, batch, self._state)
        rate = self._learning_rate()
        norm = self._updates.step(nats / self._divisor(batch), rate * batch.learning_rate_scale)
        interval.add(nats, norm, batch.token_count, rate)
        self._move_on(batch.token_count)

    def _learning_rate(self) -> float:
        training = self.config.descent
        standing = Standing(self._position.epoch + 1, self._position.updates, self._costs())
        return training.optimiser.learning_rate * training.schedule.scale(standing)

    def _divisor(self, batch: Batch) -> int:
        by_row = self.config.descent.loss_reduction == "sentences"
        return batch.rows if by_row else batch.token_count

    def _move_on(self, tokens: int) -> None:
        """Put a batch behind; at the end of an epoch stand at the start of the next."""
        at = self._position
        epoch, batch = at.epoch, at.batch + 1
        if batch == len(self._plan):
            epoch, batch = epoch + 1, 0
            self._plan = self._epoch_plan(epoch)
            self._task.enter_epoch(self.model, epoch)
        self._position = Position(epoch=epoch, batch=batch, tokens=at.tokens + tokens, updates=at.updates + 1)

    def _epoch_plan(self, epoch: int) -> Plan[Batch]:
        return self._task.training_plan(self.config.seed, epoch)

    def _progress(self, interval: Interval) -> Progress:
        speed = interval.speed()
        return Progress(self.tokens, speed, interval.loss(), max(0, self._budget - self.tokens) / speed)

    def _report(self, interval: Interval, metrics: Metrics | None, problem: str | None) -> Report:
        reason = self._reason(problem, metrics)
        peak_before = self.curve[-1].peak_memory_bytes if self.curve else 0
        train_loss = interval.loss()
        return Report(
            tokens=self.tokens,
            epoch=self.tokens / self._plan.token_count,
            train_loss=_finite(train_loss),
            train_perplexity=_finite(perplexity(train_loss)),
            valid_loss=metrics and _finite(metrics.loss),
            valid_perplexity=metrics and _finite(metrics.perplexity),
            valid_accuracy=metrics and metrics.accuracy,
            objective=self._task.objective,
            gradient_norm=_finite(interval.gradient_norm()),
            learning_rate=interval.learning_rate,
            tokens_per_second=interval.speed(),
            seconds=self._seconds,
            peak_memory_bytes=max(peak_before, memory.peak_bytes(self.device)),
            finished=reason is not None,
            reason=reason,
            kernels=self._kernels,
        )

    def _reason(self, problem: str | None, metrics: Metrics | None) -> str | None:
        """Why the trial is over after this report; None when it is not."""
        if metrics is not None:
            problem = hopeless(metrics, self._task.choices)
        if metrics is None or problem:
            return f"diverged: {problem}"
        if self.tokens >= self._budget:
            return "budget"
        return stalled([*self._costs(), metrics.cost(self._task.objective)], self.config.descent.patience)

    def _costs(self) -> list[float]:
        return [report.cost for report in self.curve if report.cost is not None]

    def _note(self, report: Report) -> None:
        """Add a report to the curve, and keep the weights when they are the best so far."""
        self.curve.append(report)
        self.best = best_report(self.curve)
        if self.best is report:
            with self._updates.judged():
                self._best_weights = copy_weights(self.model)
        self._heed()

    def _heed(self) -> None:
        """Tell the schedules that turn on validation what it came to."""
        self._updates.heed(self._costs())
        self.model.heed(self._costs())

    @contextmanager
    def _memory_explained(self) -> Iterator[None]:
        """Turn running out of memory into a TrialError that says what would fit."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not memory.ran_out(error):
                raise
            length = memory.longest_row(self.config.protocol, self.corpus["train"])
            advice = memory.advice(self.config, len(self.corpus.vocabulary), length, self.device)
            raise TrialError(f"{advice}\n({str(error).splitlines()[0]})") from None

    def save(self, folder: Path) -> None:
        """Write a checkpoint to a folder, whole or not at all; one that is there is replaced.

        Training that was interrupted in the middle of a step leaves nothing that could be resumed.
        """
        if self._interrupted:
            raise TrialError(
                "training was interrupted in the middle of a step; the last checkpoint still holds"
            )
        groups = {
            "optimiser": self._updates.state(),
            "state": self._state or {},
            "random": self._random_states.state(),
            "interval": self._interval.sums() if self._interval else {},
        }
        tensors = {
            f"{group}/{name}": tensor for group, named in groups.items() for name, tensor in named.items()
        }
        write_checkpoint(
            Checkpoint(self._record(), copy_weights(self.model), self._best_weights, tensors), folder
        )

    def _record(self) -> Record:
        return Record(
            config=self.config,
            identity=self.identity,
            corpus=self.corpus.name,
            corpus_digest=self.corpus.digest,
            vocabulary_size=len(self.corpus.vocabulary),
            position=self._position,
            curve=tuple(self.curve),
            scaler=self._updates.scaler_state(),
            versions={"torch": torch.__version__},
            seconds=self._seconds,
            interval=self._interval and self._interval.record(),
        )

    @classmethod
    def restore(cls, folder: Path, corpus: Corpus, device: str = "cpu") -> Self:
        """The learner of a checkpoint, as it was when it was saved.

        On a CPU it goes on bit for bit. A CheckpointError names what is missing, truncated, altered or of
        another corpus.
        """
        checkpoint = read_checkpoint(folder)
        check_origin(checkpoint.record, corpus, folder)
        learner = cls(checkpoint.record.config, corpus, device)
        learner._resume(checkpoint, folder)
        return learner

    def _resume(self, checkpoint: Checkpoint, folder: Path) -> None:
        record = checkpoint.record
        load_weights(self.model, checkpoint.model, folder)
        self._updates.load_state(_group(checkpoint.learner, "optimiser"))
        self._updates.load_scaler_state(record.scaler)
        self._random_states.load_state(_group(checkpoint.learner, "random"))
        state = _group(checkpoint.learner, "state")
        self._state = {name: tensor.to(self.device) for name, tensor in state.items()} or None
        self._position = record.position
        self._plan = self._epoch_plan(record.position.epoch)
        self._task.enter_epoch(self.model, record.position.epoch)
        self.curve = list(record.curve)
        self._seconds = record.seconds or (self.curve[-1].seconds if self.curve else 0.0)
        if record.interval is not None:
            self._interval = Interval.resumed(
                record.interval, _group(checkpoint.learner, "interval"), self.device
            )
        self._best_weights = checkpoint.best
        self.best = best_report(self.curve)
        self._heed()


def _group(tensors: dict[str, Tensor], group: str) -> dict[str, Tensor]:
    prefix = f"{group}/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
