"""The steps of a trial between two reports: batches, loss, rate and update, random states and sums."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite

import torch
from pydantic import Field
from torch import Tensor

from memtune.errors import TrialError
from memtune.models import fork_random_states
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
        self.record = record
        """Everything except the sums; its seconds are those before the present `measure_time`."""
        self._started: float | None = None
        zeros = dict.fromkeys(("nats", "norms"), torch.zeros((), dtype=torch.float64))
        self.sums = {name: (zeros if sums is None else sums)[name].to(device, copy=True) for name in zeros}
        """The summed nats and norms, scalars of double precision."""

    @contextmanager
    def measure_time(self) -> Iterator[None]:
        """Context whose time counts as training."""
        self._started = time.perf_counter()
        yield
        self._update(seconds=self.seconds)
        self._started = None

    @property
    def seconds(self) -> float:
        """Seconds of training since the last report, up to now."""
        running = 0.0 if self._started is None else time.perf_counter() - self._started
        return self.record.seconds + running

    def add_batch(self, nats: Tensor, tokens: int) -> None:
        """Add the summed nats of a batch and its tokens."""
        self.sums["nats"] += nats.detach()
        self._update(tokens=self.record.tokens + tokens)

    def add_step(self, norm: Tensor, learning_rate: float) -> None:
        """Add the norm of a step's gradient and its learning rate."""
        self.sums["norms"] += norm
        self._update(steps=self.record.steps + 1, learning_rate=learning_rate)

    def _update(self, **changes: float) -> None:
        self.record = self.record.model_copy(update=changes)

    def find_problem(self) -> str | None:
        """The problem if a sum is not finite, else None; on a GPU the host waits for the sums."""
        if not isfinite(self.sums["nats"].item()):
            return "the training loss is not finite"
        return None if isfinite(self.sums["norms"].item()) else "the gradient is not finite"

    def mean_loss(self) -> float:
        """Nats per token."""
        return self.sums["nats"].item() / self.record.tokens

    def mean_gradient_norm(self) -> float:
        """Mean over the steps."""
        return self.sums["norms"].item() / self.record.steps

    def tokens_per_second(self) -> float:
        """Tokens per second of training, up to now."""
        return self.record.tokens / self.seconds


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
        """Context of a block, within the trial's random states; raises TrialError after an interruption."""
        self.check_uninterrupted()
        self._is_interrupted = True
        on_gpu = self._device.type == "cuda"
        with fork_random_states([self._device] if on_gpu else []):
            started = time.perf_counter()
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
        self._start_at(Position())
        self.budget_tokens = config.count_tokens(lambda: task.epoch_tokens)
        """Predicted tokens of the whole trial."""
        self.updater = ModelUpdater(config, model, device, rate_scales)
        task.on_epoch_start(model, 0)

    def _start_at(self, position: Position) -> None:
        """Read the batches from a position on; raises IndexError for one behind its epoch's last batch."""
        self.position = position
        self._plan = self._task.training_plan(self._seed, position.epoch)
        if position.batch >= len(self._plan):
            raise IndexError(f"batch {position.batch} of an epoch of {len(self._plan)}")

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
            while self.position.tokens < interval.record.milestone and problem is None:
                self._step(interval, valid_costs)
                if interval.record.steps % check_every == 0:
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
        before = self.position
        end = min(before.batch + self._config.accumulated_batches, len(self._plan))
        batches = [self._plan.batch(index) for index in range(before.batch, end)]
        tokens = before.tokens + sum(batch.token_count for batch in batches)
        at = SchedulePosition(before.epoch + 1, before.updates, valid_costs, tokens / self.budget_tokens)
        rate = self._config.optimiser.learning_rate * self._config.schedule.scale(at)
        scale = sum(batch.learning_rate_scale for batch in batches) / len(batches)
        norm = self.updater.step(self._iterate_losses(batches, interval), rate * scale)
        interval.add_step(norm, rate)
        after = Position(epoch=before.epoch, batch=end, tokens=tokens, updates=before.updates + 1)
        if end < len(self._plan):
            self.position = after
        else:
            self._start_at(after.model_copy(update={"epoch": after.epoch + 1, "batch": 0}))
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
        self._start_at(position)
        self._task.on_epoch_start(self._model, position.epoch)
