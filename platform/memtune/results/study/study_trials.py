"""A trial of a study as one value: for ranking, tables, figures and data frames."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

from pydantic import Field, PrivateAttr, computed_field

from memtune.objective import Objective, PredictionUnit
from memtune.search import StoredStudy, StoredTrial
from memtune.search.trial_store import Sizes
from memtune.spaces import FAMILY_FIELD
from memtune.studies.definition.study_terms import name_alternative
from memtune.studies.seed_repeats import TrialNames
from memtune.training import TrainingConfig, TrialConfig, TrialSizes
from memtune.trial_state import StopReason, TrialState
from memtune.usage import Usage
from memtune.values import Value, flatten


class TrialContext(Protocol):
    """What a trial asks its study for."""

    def find_place(self, trial: "StudyTrial") -> int | None:
        """The place of the trial's configuration in the ranking."""

    def measure(self, trial: "StudyTrial") -> TrialSizes | None:
        """The sizes of the trial's model on the study's corpus."""


class StudyTrial(Value):
    """A trial or a repeat of a study."""

    number: int
    """Of the trial that the search started; its repeats have the same."""
    name: str
    """Family, number and seed: "lstm #3", or "lstm #3 seed 1" for a repeat."""
    family: str
    alternative: str
    """The alternative of the study's question that it belongs to: its family, or a value of a field."""
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
    _context: TrialContext = PrivateAttr()

    @property
    def reference(self) -> str:
        """The trial within its study: "#3", or "#3 seed 1" for a repeat."""
        return self.name.removeprefix(f"{self.family} ")

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
        """At the last report."""
        return max(self.curve, default=0)

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
        return self._context.find_place(self)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def sizes(self) -> TrialSizes | None:
        """None without the corpus in the store."""
        return self._context.measure(self)


def list_study_trials(
    stored: StoredStudy, context: TrialContext, compare: str, epoch_tokens: int | None
) -> tuple[StudyTrial, ...]:
    """The trials of a study by number, then its repeats, each named after the trial that it repeats.

    `compare` is the field whose values are the alternatives. `epoch_tokens` are the tokens of an epoch; None
    where the corpus is not known any more.
    """
    names = TrialNames(stored.outcomes)
    dumped = {
        outcome.identity: dict(flatten(outcome.config.model_dump(mode="json")))
        for outcome in (*stored.outcomes, *stored.repeats)
    }
    varying = _find_varying_fields(list(dumped.values()))

    def plan_tokens(training: TrainingConfig | None) -> int | None:
        if training is None or (epoch_tokens is None and not training.tokens):
            return None
        return training.count_tokens(lambda: epoch_tokens or 0)

    def make_trial(outcome: StoredTrial, is_repeat: bool) -> StudyTrial:
        config, fields = outcome.config, dumped[outcome.identity]
        original = names.find_original(config) if is_repeat else outcome.number
        number = outcome.number if original is None else original
        suffix = f" seed {config.seed}" if is_repeat and original is not None else ""
        trial = StudyTrial(
            number=number,
            name=f"{outcome.family} #{number}{suffix}",
            family=outcome.family,
            alternative=name_alternative(config, compare),
            seed=config.seed,
            is_repeat=is_repeat,
            identity=outcome.identity,
            state=outcome.state,
            reason="" if outcome.end is None else str(outcome.end),
            has_diverged=outcome.end is not None and outcome.end.reason is StopReason.DIVERGED,
            curve=outcome.curve,
            fields={name: fields[name] for name in varying if name in fields},
            objective=config.task.objective,
            study=stored.id,
            config=config,
            usage=outcome.usage,
            stored_sizes=outcome.sizes,
            planned_tokens=plan_tokens(config.training),
        )
        trial._context = context
        return trial

    searched = [make_trial(outcome, is_repeat=False) for outcome in stored.outcomes]
    return (*searched, *(make_trial(outcome, is_repeat=True) for outcome in stored.repeats))


def _find_varying_fields(configurations: Sequence[dict[str, Any]]) -> list[str]:
    """The fields, without family and seed, that two trials have with different values."""
    values: dict[str, list[Any]] = {}
    for fields in configurations:
        for name, value in fields.items():
            known = values.setdefault(name, [])
            if value not in known:
                known.append(value)
    return [name for name, known in values.items() if len(known) > 1 and name not in (FAMILY_FIELD, "seed")]
