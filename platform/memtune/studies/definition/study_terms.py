"""The terms of a study that may change between its runs: budget, prices, resources, repeats, champion."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from memtune.objective import Objective
from memtune.search import FORMAT_KEY, ObjectiveName, check_format
from memtune.seed_statistics import LOOKS, MAX_SEEDS, MIN_PAIRED_SEEDS
from memtune.storage.folder import Folder
from memtune.toml_text import locate_field
from memtune.training import TrialConfig, TrialSizes
from memtune.usage import NodeSeconds, Usage
from memtune.values import Value, flatten, parse

TERMS_FILE = "study.json"
"""In a study's folder: its terms as the last driver stored them."""

CONSTANT_TABLES = ("task", "model", "protocol", "training")
"""The tables of a study that replace entries of its spaces."""

SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: object) -> object:
    """A duration such as "90s", "15m", "2h" or "1d" in seconds; other values unchanged."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text)
    if not found:
        raise ValueError(
            f'a duration is a number and a unit such as "90s", "15m", "2h" or "1d", got "{text}"'
        )
    return float(found[1]) * SECONDS_PER_UNIT[found[2]]


PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""An infinite price times nothing used is not a number, so amounts and prices are finite."""
Duration = Annotated[
    PositiveNumber,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[smhd]\s*$"},
            ]
        }
    ),
]
BYTES_PER_UNIT = {"GB": 10**9, "GiB": 2**30, "MB": 10**6, "MiB": 2**20}


def parse_size(text: object) -> object:
    """A size such as "24GB" or "80 GiB" in bytes; other values unchanged."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(GB|GiB|MB|MiB)\s*", text)
    if not found:
        raise ValueError(f'a size is a number and a unit such as "24GB" or "80GiB", got "{text}"')
    size = float(found[1]) * BYTES_PER_UNIT[found[2]]
    if not math.isfinite(size):
        raise ValueError("a size must be finite")
    return int(size)


ByteSize = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(GB|GiB|MB|MiB)\s*$"},
            ]
        }
    ),
]
GpuShare = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["fit"]


class Budget(Value):
    """What ends a study: each limit counts all drivers of the study; the first that is reached ends it."""

    trials: int = Field(
        default=12,
        ge=1,
        description="different configurations started in all",
        json_schema_extra={"unit": "trials"},
    )
    tokens: int | None = Field(
        default=None,
        ge=1,
        description="predicted tokens trained on by all trials",
        json_schema_extra={"unit": "predicted tokens, or examples"},
    )
    time: Duration | None = Field(
        default=None,
        description="wall-clock time of the search, resumed ones too",
        json_schema_extra={"unit": "seconds"},
    )
    cpu_hours: PositiveNumber | None = Field(
        default=None,
        description="cores reserved by trials times hours",
        json_schema_extra={"unit": "core hours"},
    )
    gpu_hours: PositiveNumber | None = Field(
        default=None,
        description="GPUs reserved by trials times hours",
        json_schema_extra={"unit": "GPU hours"},
    )
    money: PositiveNumber | None = Field(
        default=None,
        description="at the [prices] of the study",
        json_schema_extra={"unit": "currency of [prices]"},
    )
    target: PositiveNumber | None = Field(
        default=None,
        description="a validation perplexity, or an accuracy in per cent",
        json_schema_extra={"unit": "perplexity, or per cent"},
    )
    no_improvement: int | None = Field(
        default=None,
        ge=1,
        description="trials that end after the best one without a better value",
        json_schema_extra={"unit": "trials"},
    )
    max_parameters: int | None = Field(
        default=None,
        ge=1,
        description="larger models are never started",
        json_schema_extra={"unit": "parameters"},
    )
    min_parameters: int | None = Field(
        default=None,
        ge=1,
        description="smaller models are never started",
        json_schema_extra={"unit": "parameters"},
    )

    @model_validator(mode="after")
    def _check_parameters(self) -> Self:
        low, high = self.min_parameters, self.max_parameters
        if low is not None and high is not None and low > high:
            raise ValueError(f"min_parameters = {low:,} must be at most max_parameters = {high:,}")
        return self


class Price(Value):
    """The price of a node's resources, in currency per hour."""

    cpu_hour: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="of one core",
        json_schema_extra={"unit": "currency per core and hour"},
    )
    gpu_hour: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="of one GPU",
        json_schema_extra={"unit": "currency per GPU and hour"},
    )

    def compute_money(self, seconds: NodeSeconds) -> float:
        """The price of reserved cores and GPUs."""
        return (seconds.cpu * self.cpu_hour + seconds.gpu * self.gpu_hour) / 3600


class Prices(Price):
    """Prices of all nodes, and other prices for some types of nodes."""

    currency: str = "EUR"
    """Name of the currency in tables."""
    node_types: dict[str, Price] = Field(
        default_factory=dict, description="by the name under `available_node_types` of the cluster file"
    )

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

    max_parameters: int | None = Field(
        default=None, ge=1, description="trained parameters", json_schema_extra={"unit": "parameters"}
    )
    max_multiply_adds: int | None = Field(
        default=None, ge=1, description="per token", json_schema_extra={"unit": "multiply-adds per token"}
    )
    max_state: int | None = Field(
        default=None,
        ge=1,
        description="numbers carried from word to word",
        json_schema_extra={"unit": "numbers"},
    )
    max_memory: ByteSize | None = Field(
        default=None, description="estimated bytes in training", json_schema_extra={"unit": "bytes"}
    )
    min_tokens_per_second: float | None = Field(
        default=None,
        gt=0,
        description="trained, per core",
        json_schema_extra={"unit": "tokens per second and core"},
    )

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
        """The limits as in a study file."""
        return ", ".join(f"{name} = {limit:,}" for name, limit in self.model_dump(exclude_none=True).items())


class Resources(Value):
    """The resources of one trial."""

    cpus_per_trial: int = Field(
        default=1, ge=1, description="cores, and threads of torch", json_schema_extra={"unit": "cores"}
    )
    gpus_per_trial: GpuShare = Field(
        default=0.0,
        description='a share of a GPU below 1, whole ones, or "fit": as the memory of each trial',
        json_schema_extra={"unit": "GPUs"},
    )
    gpu_memory: ByteSize | None = Field(
        default=None,
        description='of one GPU, for "fit"; default: read from the nodes',
        json_schema_extra={"unit": "bytes"},
    )
    max_concurrent: int | None = Field(
        default=None,
        ge=1,
        description="trials at once; default: what fits",
        json_schema_extra={"unit": "trials"},
    )
    checkpoint_every: Duration = Field(
        default=600.0, description="where reports are further apart", json_schema_extra={"unit": "seconds"}
    )
    report_timeout: Duration = Field(
        default=3600.0,
        description="a worker without a report for so long is killed and its trial retried",
        json_schema_extra={"unit": "seconds"},
    )

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

    best: int = Field(
        default=0,
        ge=0,
        description="how many configurations: the best of each alternative first",
        json_schema_extra={"unit": "configurations"},
    )
    seeds: int = Field(
        default=4,
        ge=2,
        le=1000,
        description="seeds in all, the search's own included, which the mean leaves out: it selected",
        json_schema_extra={"unit": "seeds"},
    )
    precision: Literal["float32", "bfloat16", "float16"] | None = Field(
        default=None, description="of the repeats; default: that of the search"
    )
    until: Literal["decided"] | None = Field(
        default=None,
        description="seeds go to the alternatives that may be best until one is, instead of best and seeds",
    )
    indifference: PositiveNumber = Field(
        default=0.005,
        description="with until: differences within it are equal; 0.005 is 0.5 % of perplexity",
        json_schema_extra={"unit": "nats per token, or share of wrong answers"},
    )
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
    def count(self) -> int:
        """Trainings under further seeds; with `until` their number is open, and this is 0."""
        return self.best * (self.seeds - 1)

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


class StoredTerms(Value):
    """The terms of a study that are read without its spaces; its file holds others too."""

    model_config = ConfigDict(extra="ignore")

    question: str = ""
    corpus: str = ""
    prices: Prices | None = None
    objectives: tuple[ObjectiveName, ...] = ("value",)
    champion: ChampionLimits = ChampionLimits()
    repeats: Repeats = Repeats()
    compare: str = "model.family"
    alternatives: tuple[str, ...] = ()
    """The alternatives that the spaces hold; empty in studies of earlier versions."""


def name_alternative(config: TrialConfig, compared: str) -> str:
    """The alternative of a study's question that a trial belongs to: its family, or its value of a field.

    A table, such as `model.mixer`, has the name by which the model describes it. A trial without the field
    `compared` belongs to its family.
    """
    if compared == "model.family":
        return config.model.family
    field = compared.rpartition(".")[2]
    values = dict(flatten(config.model_dump(mode="json")))
    if compared not in values and any(name.startswith(f"{compared}.") for name in values):
        values[compared] = config.model.describe().get(field)
    return f"{field} {values[compared]}" if compared in values else config.model.family


def describe_changed_terms(
    studies_folder: str, study_id: str, terms: Mapping[str, Any], file: Path | None = None
) -> str:
    """How a study's terms differ from those of the most similar other one of its name; "" without one.

    With the study's file, each change has its line.
    """
    folder = Folder.open(studies_folder)
    name = study_id.rpartition("-")[0]
    stored = [
        other for other in folder.list_names() if other != study_id and other.rpartition("-")[0] == name
    ]
    compared = [
        (_list_changes((folder / study).read_json(TERMS_FILE) or {}, terms, file), study) for study in stored
    ]
    if not compared:
        return ""
    changes, study = min(compared, key=lambda each: (len(each[0]), each[1]))
    if not changes and FORMAT_KEY not in ((folder / study).read_json(TERMS_FILE) or {}):
        return (
            f"study {study} is of an earlier version of memtune, which identified studies by other terms, or "
            f"its spaces, model files or corpus have changed; read it with memtune study show {study}; "
            f'warm_start = "{study}" in the file of a new study tries its best configurations first'
        )
    listed = ", ".join(changes) or "the content of its search spaces, its model files or its corpus"
    return f"changed since study {study}: {listed}; undo the change to resume that study"


def _list_changes(before: Mapping[str, Any], now: Mapping[str, Any], file: Path | None) -> list[str]:
    old, new = (dict(flatten(terms)) for terms in (before, now))
    if FORMAT_KEY not in before:  # of a version that did not know all terms; they have their defaults
        new = {
            name: value
            for name, value in new.items()
            if name in old or name.partition(".")[0] in CONSTANT_TABLES
        }
    return [
        f"{_name_field(file, name)} from {json.dumps(old.get(name))} to {json.dumps(new.get(name))}"
        for name in sorted({*new, *(name for name in old if name.partition(".")[0] in now)})
        if old.get(name) != new.get(name)
    ]


def read_stored_terms(studies_folder: str, study: str) -> StoredTerms:
    """The terms as the last driver of a study, by its id, stored them; defaults where the file is missing.

    Raises ConfigurationError for a file that no driver wrote, and StudyError for one of a later version.
    """
    folder = Folder.open(f"{studies_folder}/{study}")
    where = f"{folder}/{TERMS_FILE} (delete it; a resumed study writes it again)"
    stored = folder.read_json(TERMS_FILE) or {}
    if isinstance(stored, Mapping):
        check_format(stored, study)
    terms: StoredTerms = parse(StoredTerms, stored, where)
    return terms


def _name_field(file: Path | None, name: str) -> str:
    """A field by its dotted name, with its line in the file."""
    place = "" if file is None else locate_field(file, name).removeprefix(str(file)).removeprefix(", ")
    return f"{name} ({place})" if place else name
