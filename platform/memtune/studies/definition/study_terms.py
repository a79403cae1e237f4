"""The terms of a study: those that may change between its runs (budget, prices, resources, repeats, champion)
and those that its trials share; how terms are stored and named.
"""

import logging
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ByteSize, ConfigDict, Field, WithJsonSchema, model_validator

from memtune.corpora.batching.protocols import Protocol, SentenceProtocol
from memtune.errors import ConfigurationError
from memtune.objective import Objective
from memtune.search import ObjectiveName, check_format
from memtune.seed_statistics import LOOKS, MAX_SEEDS, MIN_PAIRED_SEEDS
from memtune.spaces import FAMILY_FIELD
from memtune.storage.folder import Folder
from memtune.tasks import AnyTaskConfig, LanguageModellingConfig
from memtune.training import TrainingConfig, TrialConfig, TrialSizes
from memtune.usage import NodeSeconds, Usage
from memtune.values import Value, flatten, parse, parse_json

log = logging.getLogger(__name__)

TERMS_FILE = "study.json"
"""In a study's folder: its terms as the last driver stored them."""

CONSTANT_TABLES = ("task", "model", "protocol", "training")
"""The tables of a study that replace entries of its spaces."""
LENGTH_FIELDS = ("tokens", "epochs", "report_every")
"""The fields of a training that all trials of a study share."""

SECONDS_BY_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = r"^\s*(\d+(?:\.\d+)?)\s*([smhd])\s*$"


def parse_duration(value: object) -> object:
    """A duration such as "90s", "15m", "2h" or "1d" in seconds; other values unchanged."""
    if not isinstance(value, str):
        return value
    if not (found := re.fullmatch(_DURATION, value)):
        raise ValueError(
            f'a duration is a number and a unit such as "90s", "15m", "2h" or "1d", got "{value}"'
        )
    return float(found[1]) * SECONDS_BY_UNIT[found[2]]


PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""An infinite price times nothing used is not a number, so amounts and prices are finite."""
Duration = Annotated[
    PositiveNumber,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": _DURATION}]}
    ),
]
GpuShare = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["fit"]


AMOUNTS = {"tokens", "time", "cpu_hours", "gpu_hours", "money"}
"""The budgets that trials and repeats use up."""
MANY_TRIALS = 1_000
"""The trials of a study that such a budget ends, unless it names their number."""


class Budget(Value):
    """What ends a study: each limit counts all drivers of the study; the first that is reached ends it.

    A target and `no_improvement` end the search alone. The search keeps what its repeats need of the others.
    """

    trials: int = Field(default=12, ge=1, json_schema_extra={"unit": "trials"})
    """Different configurations started in all; 1,000 by default where an amount ends the study."""
    tokens: int | None = Field(None, ge=1, json_schema_extra={"unit": "predicted tokens, or examples"})
    """Predicted tokens trained on by all trials."""
    time: Duration | None = Field(default=None, json_schema_extra={"unit": "seconds"})
    """Wall-clock time of the search, resumed ones too."""
    cpu_hours: PositiveNumber | None = Field(default=None, json_schema_extra={"unit": "core hours"})
    """Cores reserved by trials times hours."""
    gpu_hours: PositiveNumber | None = Field(default=None, json_schema_extra={"unit": "GPU hours"})
    """GPUs reserved by trials times hours."""
    money: PositiveNumber | None = Field(default=None, json_schema_extra={"unit": "currency of [prices]"})
    """At the [prices] of the study."""
    target: PositiveNumber | None = Field(default=None, json_schema_extra={"unit": "perplexity, or per cent"})
    """A validation perplexity, or an accuracy in per cent."""
    no_improvement: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "trials"})
    """Trials that end after the best one without a better value."""
    max_parameters: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "parameters"})
    """Larger models are never started."""
    min_parameters: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "parameters"})
    """Smaller models are never started."""
    max_state: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "numbers"})
    """Models that carry more from word to word are never started."""

    @model_validator(mode="before")
    @classmethod
    def _leave_trials_to_amounts(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and any(given.get(name) is not None for name in AMOUNTS):
            return {"trials": MANY_TRIALS, **given}
        return given

    @model_validator(mode="after")
    def _check_parameters(self) -> Self:
        low, high = self.min_parameters, self.max_parameters
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_parameters = {low:,} must be at most max_parameters = {high:,}")
        return self


class Price(Value):
    """The price of a node's resources, in currency per hour."""

    cpu_hour: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, json_schema_extra={"unit": "currency per core and hour"}
    )
    """Of one core."""
    gpu_hour: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, json_schema_extra={"unit": "currency per GPU and hour"}
    )
    """Of one GPU."""

    def compute_money(self, seconds: NodeSeconds) -> float:
        """The price of reserved cores and GPUs."""
        return (seconds.cpu * self.cpu_hour + seconds.gpu * self.gpu_hour) / 3600


class Prices(Price):
    """Prices of all nodes, and other prices for some types of nodes."""

    currency: str = "EUR"
    """Name of the currency in tables."""
    node_types: dict[str, Price] = Field(default_factory=dict)
    """By the name under `available_node_types` of the cluster file."""

    def has_price(self, *, uses_gpus: bool) -> bool:
        """Whether trials cost anything, on some type of node."""
        prices = [self, *self.node_types.values()]
        return any(price.cpu_hour > 0 or (uses_gpus and price.gpu_hour > 0) for price in prices)

    def compute_usage_money(self, usage: Usage) -> float:
        """The price of what trials have used, in the currency."""
        return sum(
            self.node_types.get(name, self).compute_money(seconds) for name, seconds in usage.nodes.items()
        )


class ChampionLimits(Value):
    """The rule by which a study chooses its best configuration: the best value within these limits."""

    max_parameters: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "parameters"})
    """Trained parameters."""
    max_multiply_adds: int | None = Field(None, ge=1, json_schema_extra={"unit": "multiply-adds per token"})
    """Per token."""
    max_state: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "numbers"})
    """Numbers carried from word to word."""
    max_memory: ByteSize | None = Field(default=None, gt=0, json_schema_extra={"unit": "bytes"})
    """Estimated bytes in training."""
    min_tokens_per_second: float | None = Field(
        default=None, gt=0, json_schema_extra={"unit": "tokens per second and core"}
    )
    """Trained, per core."""

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return any(limit is not None for limit in self.model_dump().values())

    def are_met(self, sizes: TrialSizes, tokens_per_second: float | None) -> bool:
        """Whether a trial is within all limits; an unknown amount is not."""
        amounts = {**sizes.model_dump(), "tokens_per_second": tokens_per_second}
        for name, limit in self.model_dump(exclude_none=True).items():
            bound, _, quantity = name.partition("_")
            amount = amounts[quantity]
            if amount is None or (amount > limit if bound == "max" else amount < limit):
                return False
        return True

    def __str__(self) -> str:
        return ", ".join(f"{name} = {limit:,}" for name, limit in self.model_dump(exclude_none=True).items())


class Resources(Value):
    """The resources of one trial."""

    cpus_per_trial: int = Field(default=1, ge=1, json_schema_extra={"unit": "cores"})
    """Cores, and threads of torch."""
    gpus_per_trial: GpuShare = Field(default=0.0, json_schema_extra={"unit": "GPUs"})
    """A share of a GPU below 1, whole ones, or "fit": as the memory of each trial."""
    gpu_memory: ByteSize | None = Field(default=None, gt=0, json_schema_extra={"unit": "bytes"})
    """Of one GPU, for "fit"; default: read from the nodes."""
    max_concurrent: int | None = Field(default=None, ge=1, json_schema_extra={"unit": "trials"})
    """Trials at once; default: what fits."""
    checkpoint_every: Duration = Field(default=600.0, json_schema_extra={"unit": "seconds"})
    """Where reports are further apart."""
    report_timeout: Duration = Field(default=3600.0, json_schema_extra={"unit": "seconds"})
    """A worker without a report for so long is killed and its trial retried."""

    @model_validator(mode="after")
    def _check_report_timeout(self) -> Self:
        if self.report_timeout <= self.checkpoint_every:
            raise ValueError(
                f"report_timeout = {self.report_timeout:,.0f} s must be longer than checkpoint_every = "
                f"{self.checkpoint_every:,.0f} s, because a worker reports with each checkpoint"
            )
        return self


class Repeats(Value):
    """Repeats of the best configurations under other seeds, which show the spread of a result."""

    best: int = Field(default=0, ge=0, json_schema_extra={"unit": "configurations"})
    """How many configurations: the best of each alternative first."""
    seeds: int = Field(default=4, ge=2, le=1000, json_schema_extra={"unit": "seeds"})
    """Seeds in all, the search's own included, which the mean leaves out: it selected."""
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    """Of the repeats; default: that of the search."""
    until: Literal["decided"] | None = None
    """Seeds go to the alternatives that may be best until one is, instead of best and seeds."""
    indifference: PositiveNumber = Field(
        default=0.005, json_schema_extra={"unit": "nats per token, or share of wrong answers"}
    )
    """With until: differences within it are equal; 0.005 is 0.5 % of perplexity."""
    max_seeds: int = Field(
        default=MAX_SEEDS,
        ge=MIN_PAIRED_SEEDS,
        le=MAX_SEEDS,
        description="with until: seeds of a configuration, the search's own not included; a test is made "
        f"after {', '.join(map(str, LOOKS))}",
        json_schema_extra={"unit": "seeds"},
    )

    @property
    def are_asked_for(self) -> bool:
        """Whether the study repeats anything."""
        return self.best > 0 or self.until is not None

    @property
    def most_seeds(self) -> int:
        """Those of the last test that `max_seeds` allows."""
        return max(look for look in LOOKS if look <= self.max_seeds)

    def describe_indifference(self, objective: Objective) -> str:
        """The indifference in the unit of figures, such as `0.5 %`."""
        return f"{abs(objective.compute_gain(self.indifference)):.2g} {objective.short_margin_unit}"

    @model_validator(mode="after")
    def _check_until(self) -> Self:
        unused = ("best", "seeds") if self.until else ("indifference", "max_seeds")
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].default:
                fix = "it repeats the best of each alternative" if self.until else "they need until"
                raise ValueError(
                    f'{name} has no effect {"with" if self.until else "without"} until = "decided": {fix}; '
                    f"remove {name}{'' if self.until else ', or add until'}"
                )
        return self


class SharedTerms(Value):
    """What all trials of a study share, so that their figures compare."""

    task: AnyTaskConfig = LanguageModellingConfig()
    protocol: Protocol = SentenceProtocol()
    """A searched field of it, or of the task, has one of its values: no label depends on it."""
    training: TrainingConfig = TrainingConfig(epochs=1)
    """Its LENGTH_FIELDS alone; models that count read the text once."""


class StoredTerms(Value):
    """The terms of a study that are read without its spaces; its file holds others too."""

    model_config = ConfigDict(extra="ignore")

    question: str = ""
    corpus: str = ""
    models: tuple[str, ...] = ()
    """Files with families and mixers, by their paths from the study's file."""
    prices: Prices | None = None
    objectives: tuple[ObjectiveName, ...] = ("value",)
    champion: ChampionLimits = ChampionLimits()
    repeats: Repeats = Repeats()
    compare: str = FAMILY_FIELD
    alternatives: tuple[str, ...] = ()
    """The alternatives that the spaces hold; empty in studies of earlier versions."""
    searched_fields: tuple[str, ...] = ()
    """The dotted fields that the spaces search; empty in studies of earlier versions."""
    format: int = 1
    """Of the stored study; 1 in versions that did not store it."""


def list_fields(config: TrialConfig) -> dict[str, Any]:
    """The fields of a configuration by dotted name.

    A table that its model describes, such as `model.mixer`, also has the name from there.
    """
    described = {f"model.{name}": value for name, value in config.model.describe().items()}
    return described | dict(flatten(config.model_dump(mode="json")))


def name_alternative(config: TrialConfig, compared: str) -> str:
    """The alternative of a trial: its value of the field `compared`, or its family where it has none."""
    if compared == FAMILY_FIELD:
        return config.model.family
    values = list_fields(config)
    return name_value(compared, values[compared]) if compared in values else config.model.family


def name_value(field: str, value: object) -> str:
    """A value of a field as an alternative: the last word of its name that is not "kind", and the value.

    A family has its own name.

    >>> name_value("model.layers", 2), name_value("training.optimiser.kind", "adam")
    ('layers 2', 'optimiser adam')
    """
    if field == FAMILY_FIELD:
        return str(value)
    return f"{field.removesuffix('.kind').rpartition('.')[2]} {value}"


def read_stored_terms(studies_folder: str, study: str) -> StoredTerms:
    """The terms as the last driver of a study, by its id, stored them; defaults where the file is missing.

    A missing file is named in a warning. Raises ConfigurationError for a file that no driver wrote, and
    StudyError for one of a later version.
    """
    folder = Folder.open(f"{studies_folder}/{study}")
    where = f"{folder}/{TERMS_FILE} (restore it, or resume the study, which writes it again)"
    content = folder.read_document(TERMS_FILE)
    if content is None:
        unknown = "question, corpus, alternatives, limits of the champion and prices"
        log.warning("study %s has defaults for its %s: %s is missing", study, unknown, where)
    try:
        stored = {} if content is None else parse_json(content)
    except ValueError as error:
        raise ConfigurationError(f"{where}: not JSON: {error}") from None
    if isinstance(stored, Mapping):
        check_format(stored, study)
    terms: StoredTerms = parse(StoredTerms, stored, where)
    return terms
