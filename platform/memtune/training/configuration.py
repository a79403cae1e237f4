"""What a trial is: a model, a protocol and the way it is trained, all in one value with one identity."""

from typing import Literal, Self

from pydantic import Field, model_validator

from memtune.corpora.protocols import Protocol, SentenceProtocol, TreeProtocol
from memtune.models import MODELS, CountingConfig, ModelConfig
from memtune.tasks import AnyTaskConfig, LanguageModellingConfig
from memtune.training.optimisers import OptimiserConfig, SGDConfig
from memtune.training.schedules import ConstantSchedule, Schedule
from memtune.values import Value, digest

__all__ = ["TrainingConfig", "TrialConfig"]


class TrainingConfig(Value):
    """How one trial learns."""

    optimiser: OptimiserConfig = SGDConfig()
    schedule: Schedule = ConstantSchedule()
    clip_norm: float | None = Field(5.0, gt=0)
    """Largest norm of the gradient over all parameters; None leaves it as it is."""
    loss_reduction: Literal["tokens", "sentences"] = "sentences"
    """What the gradient is of: "tokens" is the mean over the batch's tokens; "sentences" the mean over its
    rows of the sum over time, as in Zaremba et al. (2014) and the code of Tran et al. (2016). A learning rate
    is bound to it: at 35 steps "sentences" moves 35 times as far."""
    epochs: float | None = Field(None, gt=0)
    """Budget in passes over the training split; exactly one of `epochs` and `tokens` is given."""
    tokens: int | None = Field(None, gt=0)
    """Budget in predicted tokens."""
    report_every: int | None = Field(None, gt=0)
    """Tokens from one report to the next; None reports at the end of each epoch."""
    patience: int | None = Field(None, ge=1)
    """Reports in a row without a better validation loss that end the trial; None never does."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the forward and backward pass; weights and evaluations stay in float32. The others need a GPU."""
    compile: bool = False
    """Whether torch.compile compiles the model's body; needs a GPU."""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if (self.epochs is None) == (self.tokens is None):
            raise ValueError("give the budget as epochs or as tokens, exactly one of them")
        return self


class TrialConfig(Value):
    """One trial."""

    model: ModelConfig
    task: AnyTaskConfig = LanguageModellingConfig()
    protocol: Protocol = SentenceProtocol()
    training: TrainingConfig | None = None
    """How a network learns; None for a model that counts."""
    seed: int = Field(0, ge=0)
    """Of the initialisation, the order of the data, and dropout."""

    @model_validator(mode="after")
    def _networks_are_trained(self) -> Self:
        counts = isinstance(self.model, CountingConfig)
        if counts and self.training is not None:
            raise ValueError(f'family = "{self.model.family}" counts; leave [training] out')
        if not counts and self.training is None:
            raise ValueError(
                f'training is missing; family = "{self.model.family}" needs a budget, epochs or tokens'
            )
        return self

    @model_validator(mode="after")
    def _trees_are_read(self) -> Self:
        if isinstance(self.protocol, TreeProtocol) and not self.model.reads_trees:
            readers = ", ".join(f'"{family}"' for family, config in MODELS.items() if config.reads_trees)
            raise ValueError(
                f'protocol.kind = "tree" needs a family that reads trees, not "{self.model.family}"; take '
                f'{readers}, or protocol.kind = "sentence"'
            )
        return self

    @model_validator(mode="after")
    def _sentences_are_whole(self) -> Self:
        if self.model.reads_ahead and not isinstance(self.protocol, SentenceProtocol):
            raise ValueError(
                f'family = "{self.model.family}" reads ahead here, so sentences must be whole; '
                'take protocol.kind = "sentence"'
            )
        return self

    @property
    def descent(self) -> TrainingConfig:
        """How the network of this trial learns."""
        assert self.training is not None, "only a network descends a gradient"
        return self.training

    @property
    def label(self) -> str:
        """What a validation figure depends on besides the corpus; figures compare only under one label."""
        return ", ".join(part for part in (self.protocol.label, self.task.label) if part)

    def parameter_count(self, vocabulary_size: int) -> int:
        """Trained parameters of the model with its task's head, by formula."""
        return self.task.parameter_count(self.model, vocabulary_size)

    def multiply_adds(self, vocabulary_size: int) -> int:
        """Multiply-adds of the matrix products per word, forward, the task's head included."""
        return self.task.multiply_adds(self.model, vocabulary_size)

    def identity(self, corpus_digest: str) -> str:
        """Sixteen hexadecimal digits: the same for the same trial on the same corpus, and for no other."""
        return digest(self, corpus_digest)[:16]
