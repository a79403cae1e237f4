"""The steps of a trial: batches, loss, learning rate and update, with the state that they change."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil

import torch
from torch import Tensor

from memtune.errors import TrialError
from memtune.models.architecture import Model, RecurrentState
from memtune.tasks import AnyTask, TaskBatch
from memtune.training.loop.epoch_batches import EpochBatches, Position
from memtune.training.loop.progress_meter import ProgressMeter
from memtune.training.loop.random_states import RandomStates
from memtune.training.loop.report_interval import ReportInterval
from memtune.training.optimisation.schedules import SchedulePosition
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.training.optimisation.update_step import ModelUpdater


class TrainingSession:
    """Runs blocks of training under the trial's own random states and adds up their time.

    An exception that leaves a block (also KeyboardInterrupt) may leave the weights in the middle of a step,
    so the session refuses all later blocks.
    """

    def __init__(self, random_states: RandomStates) -> None:
        self.random_states = random_states
        self.elapsed_seconds = 0.0
        self._is_interrupted = False

    @contextmanager
    def run_block(self) -> Iterator[None]:
        """Context of a block; raises TrialError after an interruption."""
        self.check_uninterrupted()
        self._is_interrupted = True
        started = time.perf_counter()
        with self.random_states.use_states():
            yield
        self.elapsed_seconds += time.perf_counter() - started
        self._is_interrupted = False

    def check_uninterrupted(self) -> None:
        """Raise TrialError if a block was interrupted; its weights may be in the middle of a step."""
        if self._is_interrupted:
            raise TrialError("training was interrupted in the middle of a step; restore the last checkpoint")


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
        self.budget_tokens = config.tokens or ceil((config.epochs or 0) * self.batches.epoch_tokens)
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
        progress: ProgressMeter,
        is_stopping: Callable[[], bool],
    ) -> str | None:
        """Take steps for `seconds` or until `is_stopping()`, at most up to the interval's milestone.

        Returns the problem that ended them early: a loss or a gradient that is not finite.
        """
        started = time.perf_counter()
        check_every = 1 if self._device.type == "cpu" else GPU_CHECK_STEPS
        problem = interval.find_problem()
        self._model.train()
        with interval.measure_time():
            while self.position.tokens < interval.milestone and problem is None:
                self._step(interval, valid_costs)
                if interval.steps % check_every == 0:
                    problem = interval.find_problem()
                progress.update(self.position.tokens, interval)
                if time.perf_counter() - started >= seconds or is_stopping():
                    break
        return problem or interval.find_problem()

    def _step(self, interval: ReportInterval, valid_costs: Sequence[float]) -> None:
        batches = self.batches.read_next(self._config.accumulated_batches)
        tokens = sum(batch.token_count for batch in batches)
        rate = self._compute_learning_rate(valid_costs, tokens)
        scale = sum(batch.learning_rate_scale for batch in batches) / len(batches)
        norm = self.updater.step(self._iterate_losses(batches, interval), rate * scale)
        interval.add_step(norm, rate)
        if self.batches.advance(len(batches), tokens):
            self._task.on_epoch_start(self._model, self.position.epoch)

    def _iterate_losses(self, batches: Sequence[TaskBatch], interval: ReportInterval) -> Iterator[Tensor]:
        """The parts of a step's loss, one for each batch."""
        divisor = sum(self._find_loss_divisor(batch) for batch in batches)
        for batch in batches:
            with self.updater.autocast():
                nats, self._state = self._task.loss(self._model, batch.to(self._device), self._state)
            interval.add_batch(nats, batch.token_count)
            yield nats / divisor

    def _compute_learning_rate(self, valid_costs: Sequence[float], tokens: int) -> float:
        share = (self.position.tokens + tokens) / self.budget_tokens
        at = SchedulePosition(self.position.epoch + 1, self.position.updates, valid_costs, share)
        return self._config.optimiser.learning_rate * self._config.schedule.scale(at)

    def _find_loss_divisor(self, batch: TaskBatch) -> int:
        return batch.rows if self._config.loss_reduction == "sentences" else batch.token_count

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
