"""Configuration of a network's training: budget, optimiser, schedule and numerics."""

from collections.abc import Callable
from math import ceil
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from memtune.training.optimisation.optimisers import NTASGDConfig, OptimiserConfig, SGDConfig
from memtune.training.optimisation.schedules import ConstantSchedule, Schedule
from memtune.values import Value

MAX_EPOCHS = 1e9
"""More would be an infinite number of tokens for some corpora."""


class TrainingConfig(Value):
    """Training of one trial."""

    model_config = ConfigDict(allow_inf_nan=False)
    optimiser: OptimiserConfig = SGDConfig()
    """The optimiser and its learning rate."""
    schedule: Schedule = ConstantSchedule()
    """How the learning rate changes during the training."""
    clip_norm: float | None = Field(5.0, gt=0)
    """Largest norm of the gradient over all parameters; None does not clip."""
    loss_reduction: Literal["tokens", "sentences"] = "sentences"
    """Reduction of the loss: "tokens" is the mean over the batch's tokens; "sentences" is the mean over its
    rows of the sum over time, as in Zaremba et al. (2014) and the code of Tran et al. (2016). With rows of
    35 tokens the gradient of "sentences" is 35 times larger, so a rate of plain SGD that suits "tokens" is
    divided by about 35 for "sentences". Adam and RMSprop cancel the factor, but `clip_norm` does not."""
    accumulated_batches: int = Field(1, ge=1, json_schema_extra={"unit": "batches"})
    """Batches of one step: their gradients are added, as if they were one batch; the last step of an epoch
    may have fewer."""
    ema_decay: float = Field(0.0, ge=0, lt=1, json_schema_extra={"unit": "share kept at a step"})
    """Decay of an exponential moving average of the weights per step; reports, best weights and patience use
    the average. 0 keeps none."""
    epochs: float | None = Field(None, gt=0, le=MAX_EPOCHS, json_schema_extra={"unit": "epochs"})
    """Budget in passes over the training split; exactly one of `epochs` and `tokens` is given."""
    tokens: int | None = Field(
        None, gt=0, lt=2**63, json_schema_extra={"unit": "predicted tokens, or examples"}
    )
    """Budget in predicted tokens."""
    report_every: int | None = Field(None, gt=0, json_schema_extra={"unit": "predicted tokens, or examples"})
    """Predicted tokens between two reports; None reports at the end of each epoch."""
    patience: int | None = Field(None, ge=1, json_schema_extra={"unit": "reports"})
    """Number of successive reports without improvement that ends the trial; None never ends it."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Precision of the operands of matrix products in training; sums, loss, softmax, weights and evaluations
    use float32. bfloat16 needs a GPU, or a processor with AMX-BF16 or AVX512-BF16; float16 needs a GPU."""
    base_width: int | None = Field(None, ge=1, json_schema_extra={"unit": "units"})
    """Width at which the learning rate was found: other widths scale initial values and rates by muP (Yang et
    al. 2021). None uses the rate as it is. Needs Adam or AdamW, and a softmax that is not tied."""
    compile: bool = False
    """Whether torch.compile compiles the model's body; needs a GPU."""

    def count_tokens(self, count_epoch_tokens: Callable[[], int]) -> int:
        """The budget in predicted tokens; `count_epoch_tokens` returns those of an epoch."""
        return self.tokens or ceil((self.epochs or 0) * count_epoch_tokens())

    def tensors_per_parameter(self) -> int:
        """Floats per parameter that a trial holds besides weights and gradients."""
        return self.optimiser.tensors_per_parameter() + (self.ema_decay > 0)

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if (self.epochs is None) == (self.tokens is None):
            raise ValueError("give the budget as epochs or as tokens, exactly one of them")
        if self.ema_decay and isinstance(self.optimiser, NTASGDConfig):
            raise ValueError(
                f'ema_decay and the optimiser "{self.optimiser.kind}" both average the weights; leave one out'
            )
        return self
