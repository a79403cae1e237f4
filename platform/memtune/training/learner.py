"""One trial's learning: from milestone to milestone, interruptible at each, exact when it goes on.

Everything a learner depends on is in its configuration, its corpus and its checkpoint: the order of the data
is a function of (seed, epoch), the learning rate of the position and the curve, and dropout draws from a
random state of the learner's own. So on a CPU a trial resumed from any of its checkpoints ends with the bits
of one that ran through.
"""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from memtune.corpora.protocols import Batch, Plan
from memtune.corpora.store import Corpus
from memtune.errors import CheckpointError, ConfigurationError, TrialError
from memtune.models import build_model
from memtune.models.interface import LanguageModel, State
from memtune.tasks import LanguageModelling, Metrics, perplexity
from memtune.training import memory
from memtune.training.checkpoint import Checkpoint, Position, Record, read_checkpoint, write_checkpoint
from memtune.training.configuration import TrialConfig
from memtune.training.reports import Progress, Report
from memtune.training.schedules import Standing
from memtune.training.updates import Updates
from memtune.training.weights import copy_weights, load_weights
from memtune.values import digest

__all__ = ["Learner"]

PROGRESS_SECONDS = 0.25
HOPELESS = 10.0
"""A validation perplexity this many times the vocabulary's size is divergence: chance is one time."""
STEPS_UNSEEN = 50
"""Steps between two looks for a NaN on a GPU, where each look makes the host wait."""


@dataclass
class _Interval:
    """What has happened since the last report; the sums stay on the device."""

    nats: Tensor
    norms: Tensor
    started: float = field(default_factory=time.perf_counter)
    tokens: int = 0
    steps: int = 0
    learning_rate: float = 0.0

    def add(self, nats: Tensor, norm: Tensor, tokens: int, learning_rate: float) -> None:
        self.nats += nats.detach()
        self.norms += norm
        self.tokens += tokens
        self.steps += 1
        self.learning_rate = learning_rate

    def problem(self) -> str | None:
        if not isfinite(self.nats.item()):
            return "the training loss is not finite"
        return None if isfinite(self.norms.item()) else "the gradient is not finite"

    def loss(self) -> float:
        return self.nats.item() / self.tokens

    def speed(self) -> float:
        return self.tokens / max(time.perf_counter() - self.started, 1e-9)


class Learner:
    """A trial that learns.

    `device` is "cpu" or "cuda" ("cuda:1" and so on); the number of threads is torch's, as the caller set it.
    Raises a ConfigurationError for what the device cannot do, and a TrialError when memory runs out.
    """

    def __init__(self, config: TrialConfig, corpus: Corpus, device: str = "cpu") -> None:
        self.config = config
        self.corpus = corpus
        self.device = _device(device)
        self.identity = config.identity(corpus.digest)
        self.curve: list[Report] = []
        self.best: Report | None = None
        self._task = LanguageModelling(corpus, config.protocol)
        self._position = Position()
        self._plan = self._epoch_plan(0)
        self._budget = config.training.tokens or ceil((config.training.epochs or 0) * self._plan.token_count)
        self._state: State | None = None
        self._best_weights: dict[str, Tensor] | None = None
        self._random_states = _first_random_states(config.seed, self.device)
        self._seconds = 0.0
        self._interrupted = False
        with self._memory_explained():
            built = build_model(config.model, len(corpus.vocabulary), config.seed)
            self.model: LanguageModel = built.to(self.device)
            self._updates = Updates(config.training, self.model, self.device)

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
        if self._interrupted:
            raise TrialError("training was interrupted between two reports; restore the last checkpoint")
        self._interrupted = True
        started = time.perf_counter()
        with self._memory_explained(), self._own_randomness():
            interval, problem = self._train(self._milestone(), progress)
            speed = interval.speed()
            metrics = None if problem else self._task.evaluate(self.model, "valid", self.device)
        self._seconds += time.perf_counter() - started
        self._note(self._report(interval, speed, metrics, problem))
        self._interrupted = False
        return self.curve[-1]

    def _milestone(self) -> int:
        """Tokens at which the next report is due."""
        every = self.config.training.report_every
        if every is None:
            due = (self._position.epoch + 1) * self._plan.token_count
        else:
            due = (self.tokens // every + 1) * every
        return min(due, self._budget)

    def _train(
        self, milestone: int, progress: Callable[[Progress], None] | None
    ) -> tuple[_Interval, str | None]:
        """Steps up to a milestone, and the problem that ended them early."""
        zero = torch.zeros((), dtype=torch.float64, device=self.device)
        interval = _Interval(zero, zero.clone())
        shown = interval.started
        look_every = 1 if self.device.type == "cpu" else STEPS_UNSEEN
        self.model.train()
        while self.tokens < milestone:
            self._step(interval)
            if interval.steps % look_every == 0 and (problem := interval.problem()):
                return interval, problem
            if progress is not None and time.perf_counter() - shown > PROGRESS_SECONDS:
                progress(self._progress(interval))
                shown = time.perf_counter()
        return interval, interval.problem()

    def _step(self, interval: _Interval) -> None:
        batch = self._plan.batch(self._position.batch).to(self.device)
        with self._updates.forward():
            nats, self._state = self._task.loss(self.model, batch, self._state)
        rate = self._learning_rate()
        norm = self._updates.step(nats / self._divisor(batch), rate)
        interval.add(nats, norm, batch.token_count, rate)
        self._move_on(batch.token_count)

    def _learning_rate(self) -> float:
        training = self.config.training
        losses = [report.valid_loss for report in self.curve if report.valid_loss is not None]
        standing = Standing(self._position.epoch + 1, self._position.updates, losses)
        return training.optimiser.learning_rate * training.schedule.scale(standing)

    def _divisor(self, batch: Batch) -> int:
        by_row = self.config.training.loss_reduction == "sentences"
        return len(batch.inputs_BT) if by_row else batch.token_count

    def _move_on(self, tokens: int) -> None:
        """Put a batch behind; at the end of an epoch stand at the start of the next, with no state."""
        at = self._position
        epoch, batch = at.epoch, at.batch + 1
        if batch == len(self._plan):
            epoch, batch = epoch + 1, 0
            self._plan = self._epoch_plan(epoch)
            self._state = None
        self._position = Position(epoch=epoch, batch=batch, tokens=at.tokens + tokens, updates=at.updates + 1)

    def _epoch_plan(self, epoch: int) -> Plan:
        return self._task.training_plan(self.config.seed, epoch)

    def _progress(self, interval: _Interval) -> Progress:
        speed = interval.speed()
        return Progress(self.tokens, speed, interval.loss(), max(0, self._budget - self.tokens) / speed)

    def _report(
        self, interval: _Interval, speed: float, metrics: Metrics | None, problem: str | None
    ) -> Report:
        if metrics is not None:
            problem = self._hopeless(metrics)
        reason = self._reason(problem, metrics)
        train_loss, norm = interval.loss(), interval.norms.item() / interval.steps
        return Report(
            tokens=self.tokens,
            epoch=self.tokens / self._plan.token_count,
            train_loss=_finite(train_loss),
            train_perplexity=_finite(perplexity(train_loss)),
            valid_loss=metrics and _finite(metrics.loss),
            valid_perplexity=metrics and _finite(metrics.perplexity),
            gradient_norm=_finite(norm),
            learning_rate=interval.learning_rate,
            tokens_per_second=speed,
            seconds=self._seconds,
            peak_memory_bytes=self._peak_memory(),
            finished=reason is not None,
            reason=reason,
        )

    def _hopeless(self, metrics: Metrics) -> str | None:
        limit = HOPELESS * len(self.corpus.vocabulary)
        if metrics.perplexity <= limit:
            return None
        return (
            f"the validation perplexity {metrics.perplexity:.4g} is over {limit:g}, {HOPELESS:g} times chance"
        )

    def _reason(self, problem: str | None, metrics: Metrics | None) -> str | None:
        """Why the trial is over after this report; None when it is not."""
        if problem:
            return f"diverged: {problem}"
        if self.tokens >= self._budget:
            return "budget"
        losses = [report.valid_loss or inf for report in self.curve] + [metrics.loss if metrics else inf]
        since_best = len(losses) - 1 - losses.index(min(losses))
        patience = self.config.training.patience
        if patience is not None and since_best >= patience:
            return f"no improvement in {patience} reports"
        return None

    def _note(self, report: Report) -> None:
        """Add a report to the curve, and keep the weights when they are the best so far."""
        self.curve.append(report)
        if report.valid_loss is None or (report.reason or "").startswith("diverged"):
            return
        if self.best is None or report.valid_loss < (self.best.valid_loss or inf):
            self.best = report
            self._best_weights = copy_weights(self.model)

    def _peak_memory(self) -> int:
        before = self.curve[-1].peak_memory_bytes if self.curve else 0
        if self.device.type == "cuda":
            return max(before, torch.cuda.max_memory_allocated(self.device))
        return max(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Dropout draws from the learner's random states; those of the process are put back after."""
        on_gpu = self.device.type == "cuda"
        with torch.random.fork_rng(devices=[self.device] if on_gpu else []):
            torch.set_rng_state(self._random_states["cpu"])
            if on_gpu:
                torch.cuda.set_rng_state(self._random_states["cuda"], self.device)
            yield
            self._random_states["cpu"] = torch.get_rng_state()
            if on_gpu:
                self._random_states["cuda"] = torch.cuda.get_rng_state(self.device)

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

        To be called between reports: an advance that was interrupted leaves nothing that could be resumed.
        """
        if self._interrupted:
            raise TrialError("training was interrupted between two reports; the last checkpoint still holds")
        groups = {
            "optimiser": self._updates.state(),
            "state": self._state or {},
            "random": self._random_states,
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
        )

    @classmethod
    def restore(cls, folder: Path, corpus: Corpus, device: str = "cpu") -> Self:
        """The learner of a checkpoint, as it was when it was saved.

        On a CPU it goes on bit for bit. A CheckpointError names what is missing, truncated, altered or of
        another corpus.
        """
        checkpoint = read_checkpoint(folder)
        record = checkpoint.record
        if record.corpus_digest != corpus.digest:
            raise CheckpointError(
                f'the checkpoint in {folder} was trained on corpus "{record.corpus}" with digest '
                f'{record.corpus_digest[:12]}, not on "{corpus.name}" with {corpus.digest[:12]}; open that'
            )
        learner = cls(record.config, corpus, device)
        if record.identity != learner.identity:
            raise CheckpointError(
                f"{folder} holds trial {record.identity}, but its configuration is now that of "
                f"{learner.identity}; it was saved by another version of memtune"
            )
        learner._resume(checkpoint, folder)
        return learner

    def _resume(self, checkpoint: Checkpoint, folder: Path) -> None:
        record = checkpoint.record
        load_weights(self.model, checkpoint.model, folder)
        self._updates.load_state(_group(checkpoint.learner, "optimiser"))
        self._updates.load_scaler_state(record.scaler)
        self._random_states |= _group(checkpoint.learner, "random")
        state = _group(checkpoint.learner, "state")
        self._state = {name: tensor.to(self.device) for name, tensor in state.items()} or None
        self._position = record.position
        self._plan = self._epoch_plan(record.position.epoch)
        self.curve = list(record.curve)
        self._seconds = self.curve[-1].seconds if self.curve else 0.0
        self._best_weights = checkpoint.best
        if checkpoint.best is not None:
            losses = [inf if report.valid_loss is None else report.valid_loss for report in self.curve]
            self.best = self.curve[losses.index(min(losses))]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f'device must be "cpu" or "cuda", got "{name}"') from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(f'device "{name}" is not there: torch sees no GPU; take device = "cpu"')
    return device


def _first_random_states(seed: int, device: torch.device) -> dict[str, Tensor]:
    """Random states at the start of training, apart from the one that initialises the model."""
    derived = int(digest("training", seed)[:12], 16)
    kinds = {"cpu", device.type}
    return {kind: torch.Generator(kind).manual_seed(derived).get_state() for kind in sorted(kinds)}


def _group(tensors: dict[str, Tensor], group: str) -> dict[str, Tensor]:
    prefix = f"{group}/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
