"""The steps of a trial between two reports: batches, loss, rate and update, random states and sums."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite

import torch
from pydantic import Field
from torch import Tensor

from memtune.errors import TrialError
from memtune.models.architecture import Model, RecurrentState
from memtune.tasks import AnyTask, TaskBatch
from memtune.training.optimisation.schedules import SchedulePosition
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import ModelUpdater
from memtune.training.trial_report import Progress
from memtune.values import Value, digest


class Position(Value):
    """Progress of a trial in its data."""

    epoch: int = Field(0, ge=0)
    """Completed epochs: the index of the current one."""
    batch: int = Field(0, ge=0)
    """Completed batches of the current epoch."""
    tokens: int = Field(0, ge=0)
    """Predicted tokens trained on so far."""
    updates: int = Field(0, ge=0)
    """Steps taken so far."""


class EpochBatches:
    """The batches of a task's training split; the order in each epoch is a function of (seed, epoch)."""

    def __init__(self, task: AnyTask, seed: int, position: Position | None = None) -> None:
        """Start at the first epoch, or at the position of a checkpoint.

        Raises IndexError for a position after the last batch of its epoch.
        """
        self._task = task
        self._seed = seed
        self.position = position or Position()
        self._plan = task.training_plan(seed, self.position.epoch)
        if self.position.batch >= len(self._plan):
            raise IndexError(f"batch {self.position.batch} of an epoch of {len(self._plan)}")

    @property
    def epoch_tokens(self) -> int:
        """Predicted tokens of the current epoch."""
        return self._plan.token_count

    def read_next(self, count: int) -> list[TaskBatch]:
        """The next batches of the epoch from the position on, at most `count`, on the host."""
        end = min(self.position.batch + count, len(self._plan))
        return [self._plan.batch(index) for index in range(self.position.batch, end)]

    def advance(self, batches: int, tokens: int) -> bool:
        """Move past a step's batches and their predicted tokens; returns whether a new epoch begins."""
        at = self.position
        epoch, batch = at.epoch, at.batch + batches
        begins_epoch = batch == len(self._plan)
        if begins_epoch:
            epoch, batch = epoch + 1, 0
            self._plan = self._task.training_plan(self._seed, epoch)
        self.position = Position(epoch=epoch, batch=batch, tokens=at.tokens + tokens, updates=at.updates + 1)
        return begins_epoch


class IntervalRecord(Value):
    """The part of an interval that a checkpoint's record holds; its sums are tensors in another file."""

    milestone: int
    """Predicted tokens of the trial at which its next report is due."""
    tokens: int = 0
    """Predicted tokens since the last report."""
    steps: int = 0
    """Steps since the last report."""
    learning_rate: float = 0.0
    """Learning rate of the last step."""
    seconds: float = 0.0
    """Seconds of training since the last report, without evaluation."""


class ReportInterval:
    """Running sums since the last report; sums of tensors stay on their device until they are read."""

    def __init__(
        self, record: IntervalRecord, device: torch.device, sums: Mapping[str, Tensor] | None = None
    ) -> None:
        """Go on from a record with its sums; without sums the interval is new."""
        self.milestone, self.tokens, self.steps = record.milestone, record.tokens, record.steps
        self.learning_rate, self._seconds = record.learning_rate, record.seconds
        self._started: float | None = None
        zeros = dict.fromkeys(("nats", "norms"), torch.zeros((), dtype=torch.float64))
        self.sums = {name: (zeros if sums is None else sums)[name].to(device, copy=True) for name in zeros}
        """The summed nats and norms, scalars of double precision."""

    @contextmanager
    def measure_time(self) -> Iterator[None]:
        """Context whose time counts as training."""
        self._started = time.perf_counter()
        yield
        self._seconds, self._started = self.seconds, None

    @property
    def seconds(self) -> float:
        """Seconds of training since the last report, up to now."""
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self._seconds + running

    def add_batch(self, nats: Tensor, tokens: int) -> None:
        """Add the summed nats of a batch and its tokens."""
        self.sums["nats"] += nats.detach()
        self.tokens += tokens

    def add_step(self, norm: Tensor, learning_rate: float) -> None:
        """Add the norm of a step's gradient and its learning rate."""
        self.sums["norms"] += norm
        self.steps += 1
        self.learning_rate = learning_rate

    def find_problem(self) -> str | None:
        """The problem if a sum is not finite, else None; on a GPU the host waits for the sums."""
        if not isfinite(self.sums["nats"].item()):
            return "the training loss is not finite"
        return None if isfinite(self.sums["norms"].item()) else "the gradient is not finite"

    def mean_loss(self) -> float:
        """Nats per token."""
        return self.sums["nats"].item() / self.tokens

    def mean_gradient_norm(self) -> float:
        """Mean over the steps."""
        return self.sums["norms"].item() / self.steps

    def tokens_per_second(self) -> float:
        """Tokens per second of training, up to now."""
        return self.tokens / self.seconds

    def to_record(self) -> IntervalRecord:
        """Everything except the sums."""
        return IntervalRecord(
            milestone=self.milestone,
            tokens=self.tokens,
            steps=self.steps,
            learning_rate=self.learning_rate,
            seconds=self.seconds,
        )


class TrainingSession:
    """Runs blocks of training under the trial's own random states, for dropout, and adds up their time.

    An exception that leaves a block (also KeyboardInterrupt) may leave the weights in the middle of a step,
    so the session refuses all later blocks.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        """One random state for each kind of device, derived from the seed."""
        derived = int(digest("training", seed)[:12], 16)  # differs from the seed of the initialisation
        self._device = device
        self._states = {
            kind: torch.Generator(kind).manual_seed(derived).get_state()
            for kind in sorted({"cpu", device.type})
        }
        self.elapsed_seconds = 0.0
        self._is_interrupted = False

    @contextmanager
    def run_block(self) -> Iterator[None]:
        """Context of a block; the process has its own random states again afterwards.

        Raises TrialError after an interruption.
        """
        self.check_uninterrupted()
        self._is_interrupted = True
        started = time.perf_counter()
        on_gpu = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[self._device] if on_gpu else []):
            torch.set_rng_state(self._states["cpu"])
            if on_gpu:
                torch.cuda.set_rng_state(self._states["cuda"], self._device)
            yield
            self._states["cpu"] = torch.get_rng_state()
            if on_gpu:
                self._states["cuda"] = torch.cuda.get_rng_state(self._device)
        self.elapsed_seconds += time.perf_counter() - started
        self._is_interrupted = False

    def random_states(self) -> dict[str, Tensor]:
        """The random states by kind of device, (bytes,) uint8."""
        return dict(self._states)

    def load_random_states(self, states: dict[str, Tensor]) -> None:
        """Continue with the states that `random_states` returned.

        A kind of device without a state starts from the seed. Raises RuntimeError or TypeError for a tensor
        that is not a random state.
        """
        for kind in self._states.keys() & states.keys():
            torch.Generator(kind).set_state(states[kind])
            self._states[kind] = states[kind]

    def check_uninterrupted(self) -> None:
        """Raise TrialError if a block was interrupted; its weights may be in the middle of a step."""
        if self._is_interrupted:
            raise TrialError("training was interrupted in the middle of a step; restore the last checkpoint")


PROGRESS_SECONDS = 0.25
"""Shortest time between two calls about the progress of a trial."""
GPU_CHECK_STEPS = 50
"""Steps between two checks for NaN on a GPU. Each check makes the host wait for the GPU."""


class TrainingLoop:
    """Trains one model on one task, step by step."""

    def __init__(
        self,
        config: TrainingConfig,
        task: AnyTask,
        model: Model,
        seed: int,
        device: torch.device,
        rate_scales: Mapping[str, float] | None = None,
    ) -> None:
        """`rate_scales` has the factors of the learning rates of parameters by name; the default is 1."""
        self._config = config
        self._task = task
        self._model = model
        self._seed = seed
        self._device = device
        self._state: RecurrentState | None = None
        self.batches = EpochBatches(task, seed)
        self.budget_tokens = config.count_tokens(lambda: self.batches.epoch_tokens)
        """Predicted tokens of the whole trial."""
        self.updater = ModelUpdater(config, model, device, rate_scales)
        task.on_epoch_start(model, 0)

    @property
    def position(self) -> Position:
        """Progress in the data."""
        return self.batches.position

    def run(
        self,
        interval: ReportInterval,
        seconds: float,
        valid_costs: Sequence[float],
        progress: Callable[[Progress], None] | None,
        is_stopping: Callable[[], bool],
    ) -> str | None:
        """Take steps for `seconds` or until `is_stopping()`, at most up to the interval's milestone.

        `progress` is called four times a second at most. Returns the problem that ended the steps early: a
        loss or a gradient that is not finite.
        """
        started = last_update = time.perf_counter()
        check_every = 1 if self._device.type == "cpu" else GPU_CHECK_STEPS
        problem = interval.find_problem()
        self._model.train()
        with interval.measure_time():
            while self.position.tokens < interval.milestone and problem is None:
                self._step(interval, valid_costs)
                if interval.steps % check_every == 0:
                    problem = interval.find_problem()
                now = time.perf_counter()
                if progress is not None and now - last_update > PROGRESS_SECONDS:
                    tokens, speed = self.position.tokens, interval.tokens_per_second()
                    seconds_left = max(0, self.budget_tokens - tokens) / speed
                    progress(Progress(tokens, speed, interval.mean_loss(), seconds_left))
                    last_update = now
                if now - started >= seconds or is_stopping():
                    break
        return problem or interval.find_problem()

    def _step(self, interval: ReportInterval, valid_costs: Sequence[float]) -> None:
        batches = self.batches.read_next(self._config.accumulated_batches)
        tokens = sum(batch.token_count for batch in batches)
        share = (self.position.tokens + tokens) / self.budget_tokens
        at = SchedulePosition(self.position.epoch + 1, self.position.updates, valid_costs, share)
        rate = self._config.optimiser.learning_rate * self._config.schedule.scale(at)
        scale = sum(batch.learning_rate_scale for batch in batches) / len(batches)
        norm = self.updater.step(self._iterate_losses(batches, interval), rate * scale)
        interval.add_step(norm, rate)
        if self.batches.advance(len(batches), tokens):
            self._task.on_epoch_start(self._model, self.position.epoch)

    def _iterate_losses(self, batches: Sequence[TaskBatch], interval: ReportInterval) -> Iterator[Tensor]:
        """The parts of a step's loss, one for each batch."""
        by_row = self._config.loss_reduction == "sentences"
        divisor = sum(batch.rows if by_row else batch.token_count for batch in batches)
        for batch in batches:
            with self.updater.autocast():
                nats, self._state = self._task.loss(self._model, batch.to(self._device), self._state)
            interval.add_batch(nats, batch.token_count)
            yield nats / divisor
            del nats  # with its graph of autograd, as in ModelUpdater.step

    def on_validation(self, valid_costs: Sequence[float]) -> None:
        """Pass the costs of all validations so far to the schedules of the optimiser and of the model."""
        self.updater.on_validation(valid_costs)
        self._model.on_validation(valid_costs)

    def state_groups(self) -> dict[str, dict[str, Tensor]]:
        """Tensors that a checkpoint needs besides the weights, by group."""
        return {"optimiser": self.updater.state_dict(), "state": self._state or {}}

    def load_state(
        self, position: Position, groups: dict[str, dict[str, Tensor]], scaler: dict[str, float] | None
    ) -> None:
        """Continue at a position with the groups that `state_groups` returned there."""
        self.updater.load_state_dict(groups.get("optimiser", {}))
        self.updater.load_scaler_state_dict(scaler)
        state = groups.get("state", {})
        self._state = {name: tensor.to(self._device) for name, tensor in state.items()} or None
        self.batches = EpochBatches(self._task, self._seed, position)
        self._task.on_epoch_start(self._model, position.epoch)
