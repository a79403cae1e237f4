"""A study as its file defines it: a question, spaces, a budget and the terms of its trials."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from memtune.errors import ConfigurationError
from memtune.models import MODELS
from memtune.search import AnyEarlyStopping, ObjectiveName
from memtune.search.samplers import SAMPLERS, AnySampler, TpeConfig
from memtune.spaces import FAMILY_FIELD
from memtune.studies.definition.study_terms import (
    CONSTANT_TABLES,
    Budget,
    ChampionLimits,
    Prices,
    Repeats,
    Resources,
)
from memtune.values import UserValue, Value, flatten

MAX_DEPTH = 100
MAX_NAME_CHARACTERS = 100
"""As of a corpus. With a digest it names folders and runs, whose names have at most 250 characters."""

_REMOVED = (
    "it was removed, because it found no better configurations; choose another kind. Studies with it can be "
    "read (memtune study show), but not resumed: start the study under another name, with its id as "
    "warm_start"
)
EARLIER_TERMS = {
    **dict.fromkeys(("sampler.kind = cmaes", "sampler.kind = forest"), _REMOVED),
    **dict.fromkeys(
        (f"early_stopping.kind = {kind}" for kind in ("pasha", "constant_budget", "extrapolation")), _REMOVED
    ),
    **dict.fromkeys(
        ("halving.kind", "halving.grace", "halving.factor"),
        '[halving] is now [early_stopping] with kind = "successive_halving"',
    ),
    "baseline": "it was removed, because all alternatives are compared; leave it out",
    "resources.max_silence": "it is now resources.report_timeout",
}
"""Names and values of studies before the first release, with what replaces them."""


def copy_as_toml(value: Any, depth: int = 0) -> Any:
    """A copy of a program's value, `depth` tables below the whole, with the types of a TOML file.

    Mappings and values become dictionaries, sequences and arrays lists, paths texts, and numbers of NumPy
    those of Python. Raises ConfigurationError for tables in more than 100 others, such as one that holds
    itself.
    """
    if depth > MAX_DEPTH:
        raise ConfigurationError(f"a table is in more than {MAX_DEPTH} others, or holds itself")
    if isinstance(value, Value):
        return copy_as_toml(value.model_dump(mode="json"), depth)
    if isinstance(value, Mapping):
        return {name: copy_as_toml(own, depth + 1) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [copy_as_toml(own, depth + 1) for own in value]
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


Point = Annotated[
    dict[str, str | bool | int | float],
    BeforeValidator(lambda point: dict(flatten(point)) if isinstance(point, Mapping) else point),
    WithJsonSchema({"type": "object"}),
]
"""Values by dotted field; TOML nests what is written with dotted keys."""


class FamilyTerms(Value):
    """Values, or parameters, of one family alone, which replace those of its space and of the study."""

    model: dict[str, Any] = Field(default_factory=dict)
    """Of the model."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Of the training."""


NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Study(UserValue):
    """A question, the spaces to search, and the terms under which trials are compared.

    Fields are those of a study file; tables are mappings, such as `budget={"trials": 8}`.

    `task`, `model`, `protocol` and `training` hold constants for every trial, which override the entries of
    the spaces. A field that only some of the study's families have (a width, a training) applies to those.
    """

    question: str
    """The question that the study answers, in one sentence; tables and reports show it."""
    name: str = Field(pattern=NAME_PATTERN, max_length=MAX_NAME_CHARACTERS)
    """Name of the study; default: the name of its file. A study without a file needs one."""
    corpus: str
    """Name of a corpus of the store; "text+questions" joins the text of one with the questions of another."""
    spaces: tuple[str, ...] = Field(min_length=1)
    """Search spaces, by name or as paths that end in .toml."""
    models: tuple[str, ...] = ()
    """Python files with model families, relative to the study; their spaces are next to them."""
    task: dict[str, Any] = Field(default_factory=dict)
    """Values, or parameters, that replace those of all spaces: of the task."""
    model: dict[str, Any] = Field(default_factory=dict)
    """The same for the model; a field that only some families have applies to those."""
    protocol: dict[str, Any] = Field(default_factory=dict)
    """The same for the protocol."""
    training: dict[str, Any] = Field(default_factory=dict)
    """The same for the training."""
    families: dict[str, FamilyTerms] = Field(default_factory=dict)
    """Values and ranges of one family alone, such as [families.lstm.training]."""
    seed: int = 0
    """Seed of each trial: of its initialisation, the order of its data and dropout."""
    sampler: AnySampler = TpeConfig()
    """How configurations are sampled."""
    objectives: tuple[ObjectiveName, ...] = ("value",)
    """What the sampler makes good: the value, and sizes of the models."""
    points: Literal["papers"] | tuple[Point, ...] = ()
    """Configurations to try first, as values by dotted field."""
    warm_start: str | None = None
    """Id of a study in the same storage, whose best configurations are tried first."""
    early_stopping: AnyEarlyStopping | None = None
    """Which trials end early; default: promotion from a quarter of a trial; none with several objectives, or
    where trials report only at their end."""
    budget: Budget = Budget()
    """What ends the study."""
    prices: Prices | None = None
    """Prices of cores and GPUs, for budget.money and for tables."""
    resources: Resources = Resources()
    """Resources of one trial."""
    repeats: Repeats = Repeats()
    """Repeats of the best configurations under other seeds."""
    compare: str = FAMILY_FIELD
    """The field whose values are the alternatives of the question; each is represented by its best
    configuration."""
    champion: ChampionLimits = ChampionLimits()
    """Limits within which the best value is the study's best."""

    @model_validator(mode="before")
    @classmethod
    def _read_document(cls, document: Any) -> Any:
        if not isinstance(document, Mapping):
            return document
        terms = copy_as_toml(document)
        for name, value in flatten(terms):
            with_value = f"{name} = {value}" if isinstance(value, str) else name
            if advice := EARLIER_TERMS.get(name) or EARLIER_TERMS.get(with_value):
                raise ValueError(f"{with_value}: {advice}")
        return terms

    @field_validator("spaces", mode="before")
    @classmethod
    def _refuse_tables(cls, spaces: Any) -> Any:
        if isinstance(spaces, list) and any(isinstance(space, Mapping) for space in spaces):
            raise ValueError(
                'a space is a name such as "lstm", or a path that ends in .toml; ranges of a study are under '
                "model and training, such as width = { int = [16, 64] }"
            )
        return spaces

    @field_validator("points", mode="before")
    @classmethod
    def _check_points(cls, points: Any) -> Any:
        if points != "papers" and not isinstance(points, list | tuple):
            raise ValueError(
                'must be "papers" or a list of configurations, such as [{ model.family = "lstm" }], '
                f"got {points!r}"
            )
        return points

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        money, uses_gpus = self.budget.money, bool(self.resources.gpus_per_trial)
        if money is not None and self.prices is None:
            raise ValueError(
                "budget.money needs [prices], such as cpu_hour = 0.04 and gpu_hour = 1.2 in currency per hour"
            )
        if money is not None and self.prices and not self.prices.has_price(uses_gpus=uses_gpus):
            reserved = "" if uses_gpus else "trials reserve no GPU and "
            raise ValueError(
                f"budget.money = {money:g} is never reached, because {reserved}prices.cpu_hour is 0; set "
                "prices.cpu_hour"
            )
        if self.budget.gpu_hours is not None and not uses_gpus:
            raise ValueError(
                f"budget.gpu_hours = {self.budget.gpu_hours:g} is never reached, because "
                "resources.gpus_per_trial = 0; set it, or use budget.cpu_hours"
            )
        return self

    @model_validator(mode="after")
    def _check_objectives(self) -> Self:
        named = f"objectives = {json.dumps(self.objectives)}"
        if "value" not in self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise ValueError(
                f'{named} must name "value" and each objective once; write ["value", "parameters"]'
            )
        if len(self.objectives) == 1:
            return self
        if not self.sampler.can_have_several_objectives:
            known = SAMPLERS.built_in.items()
            kinds = ", ".join(f'"{kind}"' for kind, each in known if each.can_have_several_objectives)
            raise ValueError(
                f'sampler.kind = "{self.sampler.kind}" has one objective; with {named} choose one of {kinds}'
            )
        if self.early_stopping is not None and self.early_stopping.kind != "none":
            raise ValueError(
                f'early_stopping.kind = "{self.early_stopping.kind}" compares trials by their value alone '
                f"and would stop the small models of the front; with {named} leave [early_stopping] out"
            )
        return self

    @property
    def measures_speed(self) -> bool:
        """Whether the measured speed of trials decides anything in the study."""
        limit = self.champion.min_tokens_per_second
        return "tokens_per_second" in self.objectives or limit is not None

    def select_entries(self, family: str | None, families: Collection[str | None]) -> dict[str, Any]:
        """The study's constants that apply to a family's space.

        A field that no family of the study has is kept, so that the space's check reports it.
        """
        own, others = MODELS.get(family or ""), [MODELS[name] for name in families if name and name in MODELS]
        if own is None:
            return self._build_entries(self.model, self.training)
        beside_networks = not own.is_trained_by_gradient and any(
            other.is_trained_by_gradient for other in others
        )
        elsewhere = {name for other in others for name in other.model_fields}
        model = {
            name: value
            for name, value in self.model.items()
            if name in own.model_fields or not (beside_networks or name in elsewhere)
        }
        return self._build_entries(model, {} if beside_networks else self.training)

    def sets_field(self, name: str) -> bool:
        """Whether the constants and ranges of the study set a field of its trials, by dotted name."""
        tables = self.model_dump(include={*CONSTANT_TABLES, "families"})
        fields = [f"{field}." for field, _ in flatten(tables)]
        return any(field.startswith(f"{name}.") or f"{name}.".startswith(field) for field in fields)

    def list_stated_priors(self) -> list[str]:
        """The priors of parameters, by dotted name, that the study states, and not its spaces."""
        tables = self.model_dump(include={*CONSTANT_TABLES, "families"})
        return [name for name, _ in flatten(tables) if name.endswith(".prior")]

    def _build_entries(self, model: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
        tables = {"task": self.task, "model": model, "protocol": self.protocol, "training": training}
        return {**{name: table for name, table in tables.items() if table}, "seed": self.seed}
