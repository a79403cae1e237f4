"""What every task answers: a configuration, the model it asks for, batches, their loss and its metrics.

A task is one module: a configuration, which is part of a trial, and what it opens on a corpus. Whatever
trains, searches and records trials knows the tasks only through this interface.
"""

import typing
from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from memtune.corpora.protocols import Protocol
from memtune.corpora.store import Corpus
from memtune.models.interface import LanguageModelConfig, Model, State
from memtune.objective import Objective
from memtune.values import Value

__all__ = ["AnyTask", "Batch", "Metrics", "Plan", "Task", "TaskConfig", "build", "open_task"]


class Metrics(Value):
    """What an evaluation found."""

    loss: float
    """Nats per predicted token, lower is better; a classifier's tokens are its labels."""
    perplexity: float
    """exp(loss): per predicted token, lower is better."""
    tokens: int
    """Predicted tokens that counted."""
    accuracy: float | None = None
    """Share of right answers, where something is asked; higher is better."""
    questions: int | None = None
    """How many were asked."""

    def cost(self, objective: Objective) -> float:
        """What an objective compares by, lower is better."""
        if objective == "perplexity":
            return self.loss
        assert self.accuracy is not None, "a task judged by accuracy asks questions"
        return 1 - self.accuracy


class Batch(typing.Protocol):
    """What a step learns from."""

    @property
    def token_count(self) -> int:
        """Predicted tokens that count."""

    @property
    def rows(self) -> int:
        """Sentences, examples or pieces of a stream that are read side by side."""

    @property
    def learning_rate_scale(self) -> float:
        """What the learning rate is multiplied by for this batch."""

    def to(self, device: torch.device) -> Self:
        """The same batch on a device."""


BatchT = TypeVar("BatchT", bound=Batch)
BatchT_co = TypeVar("BatchT_co", bound=Batch, covariant=True)
ModelT = TypeVar("ModelT", bound=Model)


class Plan(typing.Protocol[BatchT_co]):
    """The batches of one epoch of training, or of one evaluation, in their order."""

    @property
    def token_count(self) -> int:
        """Predicted tokens of the whole plan."""

    def __len__(self) -> int:
        """Number of batches."""

    def batch(self, index: int) -> BatchT_co:
        """The batch at an index from 0, made without those before it."""


class TaskConfig(Value, ABC):
    """A task as part of a trial's configuration."""

    kind: str
    objective: Objective
    """What trials of the task are compared by."""

    @property
    def label(self) -> str:
        """The task, and what of it a figure depends on, in words; nothing for language modelling."""
        return self.kind.replace("_", " ")

    @abstractmethod
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> Model:
        """A new model with the task's head; raises ConfigurationError for a family that cannot serve."""

    @abstractmethod
    def parameter_count(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        """Trained parameters of that model, by formula."""

    @abstractmethod
    def multiply_adds(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        """Multiply-adds per word read, forward, head included."""

    @abstractmethod
    def open(self, corpus: Corpus, protocol: Protocol) -> "AnyTask":
        """The task on a corpus; raises CorpusError or ConfigurationError that says what is lacking."""


class Task(ABC, Generic[ModelT, BatchT]):
    """A task opened on a corpus."""

    objective: Objective
    choices: int
    """Of how many a prediction is one: chance is one in so many."""

    @property
    @abstractmethod
    def epoch_tokens(self) -> int:
        """Predicted tokens in an epoch of training."""

    @abstractmethod
    def training_plan(self, seed: int, epoch: int) -> Plan[BatchT]:
        """The batches of one epoch over the training split, a function of (seed, epoch)."""

    @abstractmethod
    def loss(self, model: ModelT, batch: BatchT, state: State | None) -> tuple[Tensor, State]:
        """Summed nats of a batch's predictions (a scalar), and the state after it, cut from the graph.

        `state` is what the batch before returned; it is read only by a batch that is carried on.
        """

    @abstractmethod
    def evaluate(self, model: ModelT, split: str, device: str | torch.device = "cpu") -> Metrics:
        """The metrics of a split, every prediction counted once; the model lies on `device`."""

    def prepare(self, model: ModelT) -> None:
        """Tell a new model what the corpus knows and its configuration does not."""

    def enter_epoch(self, model: ModelT, epoch: int) -> None:
        """Hear that an epoch, counted from 0, begins, or goes on after a restart."""


AnyTask = Task[Any, Any]


def build(task: TaskConfig, model: LanguageModelConfig, vocabulary_size: int, seed: int) -> Model:
    """A new model for a task; equal arguments give equal parameters, on any machine.

    Torch's default generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return task.build(model, vocabulary_size)


def open_task(task: TaskConfig, corpus: Corpus, protocol: Protocol) -> AnyTask:
    """A task on a corpus. Raises what `TaskConfig.open` raises."""
    return task.open(corpus, protocol)
