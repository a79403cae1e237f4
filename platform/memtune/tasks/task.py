"""The interface of a task: its configuration, its model, its batches, its loss and its metrics.

A task is one module with a configuration, which is part of a trial, and a class for the task on a corpus.
Training, search and tracking use tasks only through this interface.
"""

import typing
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch
from pydantic import ConfigDict, field_validator
from torch import Tensor

from memtune.corpora.batching.batches import TaskPlan
from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus
from memtune.models import fix_defaults
from memtune.models.architecture import LanguageModelConfig, Model, RecurrentState
from memtune.objective import Objective, PredictionUnit
from memtune.plugins import PluginConfig
from memtune.tasks.item_costs import ItemCosts
from memtune.values import Value


class Metrics(Value):
    """Results of an evaluation."""

    loss: float
    """Nats per predicted token, lower is better; a classifier's tokens are its labels."""
    perplexity: float
    """exp(loss): per predicted token, lower is better."""
    tokens: int
    """Number of predicted tokens in the loss."""
    accuracy: float | None = None
    """Share of correct answers, higher is better; a tie among k candidates counts 1 / k. None without
    questions."""
    questions: int | None = None
    """Number of questions or labels behind the accuracy."""
    ties: int | None = None
    """Number of these questions whose best candidates have exactly equal scores."""

    def cost(self, objective: Objective) -> float:
        """The value that compares trials of an objective, lower is better."""
        metric = getattr(self, objective.metric)
        assert metric is not None, "a task compared by accuracy has questions or labels"
        return objective.compute_cost(metric)


class TaskBatch(typing.Protocol):
    """The data of one training step."""

    @property
    def token_count(self) -> int:
        """Number of predicted tokens in the loss."""

    @property
    def rows(self) -> int:
        """Number of rows: sentences, examples, or parallel segments of a stream."""

    @property
    def learning_rate_scale(self) -> float:
        """Factor of the learning rate for this batch."""

    def to(self, device: torch.device) -> Self:
        """The same batch on a device."""


BatchT = TypeVar("BatchT", bound=TaskBatch)
ModelT = TypeVar("ModelT", bound=Model)


class TaskConfig(PluginConfig):
    """A task as part of a trial's configuration."""

    model_config = ConfigDict(validate_default=True)

    kind: str
    objective: Objective
    """The figure that compares trials of the task."""

    prediction_unit: ClassVar[PredictionUnit]
    """Unit of predictions: words of a text, or labelled examples."""

    @field_validator("objective", mode="after")
    @classmethod
    def _parse_objective(cls, value: str) -> Objective:
        """A user's task may declare its objective by name, as in Literal["perplexity"]."""
        return Objective(value)

    @property
    def label(self) -> str:
        """The task and the options that its figures depend on, in words; "" for language modelling."""
        return self.kind.replace("_", " ")

    @abstractmethod
    def build(self, model: LanguageModelConfig, vocabulary_size: int) -> Model:
        """A new model with the task's head; raises ConfigurationError for an unsupported family."""

    @abstractmethod
    def parameter_count(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        """Number of trained parameters of that model, by formula."""

    @abstractmethod
    def multiply_adds(self, model: LanguageModelConfig, vocabulary_size: int) -> int:
        """Multiply-adds of the forward pass per word read, head included."""

    @abstractmethod
    def is_evaluable(self, corpus: Corpus, protocol: Protocol, split: str) -> bool:
        """Whether a split has everything that an evaluation needs: text, and questions, labels or trees."""

    @abstractmethod
    def open(self, corpus: Corpus, protocol: Protocol) -> "AnyTask":
        """The task on a corpus; raises CorpusError or ConfigurationError that names what is missing."""


class Task(ABC, Generic[ModelT, BatchT]):
    """A task opened on a corpus."""

    objective: Objective
    outcome_count: int
    """Number of possible outcomes of a prediction: the perplexity of a uniform guess."""

    @property
    @abstractmethod
    def epoch_tokens(self) -> int:
        """Number of predicted tokens in a training epoch."""

    @abstractmethod
    def training_plan(self, seed: int, epoch: int) -> TaskPlan[BatchT]:
        """The batches of one epoch over the training split, a function of (seed, epoch)."""

    @abstractmethod
    def loss(
        self, model: ModelT, batch: BatchT, state: RecurrentState | None
    ) -> tuple[Tensor, RecurrentState]:
        """Summed nats of a batch's predictions (a scalar), and the detached state after it.

        `state` is the state that the previous batch returned; only a batch that carries state reads it.
        """

    @abstractmethod
    def evaluate(self, model: ModelT, split: str, device: str | torch.device = "cpu") -> Metrics:
        """The metrics of a split, with every prediction counted once; the model is on `device`."""

    @abstractmethod
    def compute_item_costs(self, model: ModelT, split: str, device: str | torch.device = "cpu") -> ItemCosts:
        """Costs of the split's items by the task's objective; together they are the cost of `evaluate`."""

    def add_accuracy(
        self, metrics: Metrics, model: ModelT, split: str, device: str | torch.device = "cpu"
    ) -> Metrics:
        """The metrics with the accuracy of the task's questions; unchanged for a task without questions."""
        return metrics

    def initialise_model(self, model: ModelT) -> None:
        """Initialise the parts of a new model that depend on the corpus: word counts, pretrained vectors."""

    def on_epoch_start(self, model: ModelT, epoch: int) -> None:
        """Called when an epoch, counted from 0, begins, and when a restored trial continues one."""


AnyTask = Task[Any, Any]


def build_task_model(task: TaskConfig, model: LanguageModelConfig, vocabulary_size: int, seed: int) -> Model:
    """A new model for a task; equal arguments give equal parameters, on any machine.

    The state of torch's default generator does not change.
    """
    with fix_defaults(seed):
        return task.build(model, vocabulary_size)
