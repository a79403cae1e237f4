"""The training batches of a trial, epoch after epoch, from any position."""

from pydantic import Field

from memtune.tasks import AnyTask, TaskBatch
from memtune.values import Value


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
