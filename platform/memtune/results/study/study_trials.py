"""A trial of a study as one value: for ranking, tables, figures and data frames."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from pydantic import Field, PrivateAttr, computed_field

from memtune.objective import Objective, PredictionUnit
from memtune.search.trial_store import Sizes
from memtune.training import TrialConfig, TrialSizes
from memtune.trial_state import TrialState
from memtune.usage import Usage
from memtune.values import Value


class NamedTrial(Value):
    """A trial, or a configuration, under the names that tables and figures have for it."""

    number: int
    """Of the trial that the search started; its repeats have the same."""
    name: str
    """Alternative, number and seed: "lstm #3", or "layers 2 #3 seed 1" for a repeat."""
    family: str
    alternative: str
    """The alternative of the study's question that it belongs to: its family, or a value of a field."""


class StudyTrial(NamedTrial):
    """A trial or a repeat of a study."""

    seed: int
    is_repeat: bool
    identity: str
    state: TrialState
    reason: str = ""
    """Why it ended, where the study or a fault ended it."""
    has_diverged: bool = False
    """Whether it ended because its loss, gradient or validation diverged."""
    curve: dict[int, float]
    """Validation cost by tokens seen, lower is better."""
    fields: dict[str, Any] = Field(default_factory=dict)
    """The fields of the configuration, by dotted name, in which the study's trials differ."""
    objective: Objective = Objective.PERPLEXITY
    study: str = Field(default="", exclude=True)
    config: TrialConfig = Field(exclude=True)
    usage: Usage = Field(default_factory=Usage, exclude=True)
    stored_sizes: Sizes = Field(default_factory=dict, exclude=True)
    planned_tokens: float | None = Field(default=None, exclude=True)
    """Its budget in tokens; None for a model that counts, and where the length of an epoch is not known."""
    _find_place: "Callable[[StudyTrial], int | None]" = PrivateAttr()
    _measure: "Callable[[StudyTrial], TrialSizes | None]" = PrivateAttr()
    """What its study finds on first use."""

    @property
    def reference(self) -> str:
        """The trial within its study: "#3", or "#3 seed 1" for a repeat."""
        return self.name.removeprefix(f"{self.alternative} ")

    @property
    def configuration(self) -> str:
        """The identity of the configuration without its seed."""
        return self.config.configuration_identity

    @property
    def unit(self) -> PredictionUnit:
        """What its task predicts, which its curve counts."""
        return self.config.task.prediction_unit

    @property
    def is_counted(self) -> bool:
        """Whether its model learns by counting, which has one result under every seed."""
        return not self.config.model.is_trained_by_gradient

    @property
    def is_reused(self) -> bool:
        """Whether another study has trained it, in part at least: its usage is not that of a training."""
        return self.usage.tokens < self.validated_tokens

    @property
    def validated_tokens(self) -> int:
        """At the last report with a validation; 0 before the first."""
        return max(self.curve, default=0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost(self) -> float | None:
        """The lowest validation cost; None before the first validation."""
        return min(self.curve.values(), default=None)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def figure(self) -> float | None:
        """The same as perplexity or accuracy."""
        return None if self.cost is None else self.objective.compute_figure(self.cost)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def tokens(self) -> int:
        """At the last report, which has no validation where it failed or diverged."""
        lacks_validation = self.has_diverged or self.state is TrialState.FAILED
        return max(self.validated_tokens, self.usage.tokens if lacks_validation else 0)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cpu_hours(self) -> float:
        """Reserved cores times hours."""
        return self.usage.cpu_seconds / 3600

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gpu_hours(self) -> float:
        """Reserved GPUs times hours."""
        return self.usage.gpu_seconds / 3600

    @computed_field  # type: ignore[prop-decorator]
    @property
    def tokens_per_second(self) -> float | None:
        """Trained tokens per second of a reserved core; None where nothing was measured."""
        return self.usage.tokens_per_second

    @computed_field  # type: ignore[prop-decorator]
    @property
    def place(self) -> int | None:
        """The place of its configuration in the ranking; None for one that is not ranked."""
        return self._find_place(self)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def sizes(self) -> TrialSizes | None:
        """None without the corpus in the store."""
        return self._measure(self)
