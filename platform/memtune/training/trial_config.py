"""Configuration of a trial: model, task, protocol, training and seed, in one value with one identity."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from memtune.corpora.batching.protocols import Protocol, SentenceProtocol
from memtune.models import MODELS, ModelConfig
from memtune.spaces import SizeKind
from memtune.tasks import AnyTaskConfig, LanguageModellingConfig
from memtune.training.optimisation.optimisers import AdamConfig
from memtune.training.optimisation.training_config import TrainingConfig
from memtune.values import Value, digest

LATER_FIELDS = {
    "training.accumulated_batches": 1,
    "training.ema_decay": 0.0,
    "training.optimiser.decayed": "all",
}
"""Fields that were added after trials had been stored, with their defaults, which identities leave out."""


def identify(document: Mapping[str, Any], corpus_digest: str | None = None) -> str:
    """Sixteen hexadecimal digits that identify a whole configuration on a corpus, or on any.

    The document is that of a `TrialConfig`, dumped now or as a store holds it. LATER_FIELDS at their defaults
    are left out, so that a trial has one identity in all versions that know its other fields; where a version
    knows more of them, the stored identity is that of the stored document.
    """
    parts = [_drop_later_fields(document), corpus_digest]
    return digest(*parts[: 1 if corpus_digest is None else 2])[:16]


def _drop_later_fields(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    return {
        name: _drop_later_fields(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in table.items()
        if f"{prefix}{name}" not in LATER_FIELDS or value != LATER_FIELDS[f"{prefix}{name}"]
    }


class TrialConfig(Value):
    """One trial."""

    model: ModelConfig
    """The network, or the model that counts; docs/models.md lists the fields of each family."""
    task: AnyTaskConfig = LanguageModellingConfig()
    """What is predicted and which figure compares trials."""
    protocol: Protocol = SentenceProtocol()
    """How the text is cut into batches and where the state is reset; results compare only under one
    protocol."""
    training: TrainingConfig | None = None
    """Training of a network; None for a model that counts."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the initialisation, the order of the data and dropout."""

    @model_validator(mode="after")
    def _check_training(self) -> Self:
        if not self.model.is_loaded:
            return self
        is_gradient_trial = self.model.is_trained_by_gradient
        if not is_gradient_trial and self.training is not None:
            raise ValueError(f'family = "{self.model.family}" counts; leave [training] out')
        if is_gradient_trial and self.training is None:
            raise ValueError(
                f'training is missing; family = "{self.model.family}" needs a budget, epochs or tokens'
            )
        return self

    @model_validator(mode="after")
    def _check_trees(self) -> Self:
        if self.protocol.reads_trees and self.model.is_loaded and not self.model.reads_trees:
            readers = ", ".join(f'"{family}"' for family, config in MODELS.items() if config.reads_trees)
            raise ValueError(
                f'protocol.kind = "tree" needs a family that reads trees, not "{self.model.family}"; use '
                f'{readers}, or protocol.kind = "sentence"'
            )
        return self

    @model_validator(mode="after")
    def _check_sentences(self) -> Self:
        if self.model.reads_ahead and not self.protocol.reads_sentences:
            raise ValueError(
                f'family = "{self.model.family}" reads ahead here, so sentences must be whole; '
                'set protocol.kind = "sentence"'
            )
        return self

    @model_validator(mode="after")
    def _check_base_width(self) -> Self:
        if self.training is None or self.training.base_width is None or not self.model.is_loaded:
            return self
        optimiser = self.training.optimiser
        if not isinstance(optimiser, AdamConfig):
            raise ValueError(
                f'training.base_width scales the rates of "adam" and "adamw", not of "{optimiser.kind}"; '
                "leave it out"
            )
        network = self.model.require_network("training.base_width")
        if problem := network.find_width_scaling_problem(self.training.base_width):
            raise ValueError(f"training.base_width scales a softmax of its own, {problem}")
        return self

    @property
    def is_loaded(self) -> bool:
        """Whether the code of its model and its task is there; stored ones of users are known without it."""
        return self.model.is_loaded and self.task.is_loaded

    @property
    def base_model(self) -> ModelConfig | None:
        """The model at the width for which the learning rate was found; None without one."""
        if self.training is None or self.training.base_width is None:
            return None
        return self.model.model_copy(update={"width": self.training.base_width})

    @property
    def gradient_training(self) -> TrainingConfig:
        """The training configuration of this trial's network."""
        assert self.training is not None, "only a network has a training configuration"
        return self.training

    def count_tokens(self, count_epoch_tokens: Callable[[], int]) -> int:
        """Predicted tokens of the trial at full length; `count_epoch_tokens` returns those of an epoch.

        A model that counts reads the text once.
        """
        return (
            count_epoch_tokens() if self.training is None else self.training.count_tokens(count_epoch_tokens)
        )

    @property
    def label(self) -> str:
        """Protocol and task; only figures with the same label and corpus are comparable."""
        return ", ".join(part for part in (self.protocol.label, self.task.label) if part)

    @property
    def configuration_identity(self) -> str:
        """Sixteen hexadecimal digits that trials share which differ in their seed alone."""
        return identify(self.model_dump(mode="json") | {"seed": 0})

    def parameter_count(self, vocabulary_size: int) -> int:
        """Trained parameters of the model with its task's head, by formula."""
        return self.task.parameter_count(self.model, vocabulary_size)

    def multiply_adds(self, vocabulary_size: int) -> int:
        """Multiply-adds of the forward pass per word, the task's head included."""
        return self.task.multiply_adds(self.model, vocabulary_size)

    def measure_size(self, kind: SizeKind, vocabulary_size: int) -> int:
        """A size of the model; the state of a task on sentences is that of its reader."""
        match kind:
            case "parameters":
                return self.parameter_count(vocabulary_size)
            case "multiply_adds":
                return self.multiply_adds(vocabulary_size)
            case "state":
                return self.model.state_size()

    def identity(self, corpus_digest: str) -> str:
        """Sixteen hexadecimal digits that identify this trial on a corpus."""
        return identify(self.model_dump(mode="json"), corpus_digest)
