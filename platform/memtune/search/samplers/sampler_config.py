"""The sampler of a study, as its file defines it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from optuna.samplers import BaseSampler
from pydantic import Field, model_validator

from memtune.errors import did_you_mean
from memtune.plugins import ObjectRegistry
from memtune.spaces import Scalar
from memtune.values import Value


@dataclass(frozen=True)
class SamplerRequest:
    """One ask of a study, for a sampler of a package."""

    seed: int
    """Of this ask: a sampler made with it proposes the same when the study is resumed."""
    options: Mapping[str, Scalar]
    """`[sampler.options]` of the study."""


MakeSampler = Callable[[SamplerRequest], BaseSampler]
"""A new sampler of Optuna; it learns from the study's trials through Optuna and keeps no state."""

SAMPLERS: ObjectRegistry[MakeSampler] = ObjectRegistry("sampler", "memtune.samplers", callable, {})
"""Kind in a study file -> the sampler of a package; the built-in ones are in `sampler_factory`."""


BUILT_IN_KINDS = ("tpe", "random", "qmc", "gp", "nsga2", "grid")


class SamplerConfig(Value):
    """How a study samples configurations: initial trials first, then from earlier results."""

    kind: str = Field(
        default="tpe", description=f"{', '.join(BUILT_IN_KINDS)}, or the sampler of an installed package"
    )
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the sampler; with one trial at a time, the same seed tries the same configurations."""
    startup: Literal["random", "sobol"] = Field(
        default="random", description="how configurations are drawn before the sampler learns"
    )
    startup_trials: int = Field(
        default=10,
        ge=1,
        description="trials before the sampler learns, two per family at least",
        json_schema_extra={"unit": "trials"},
    )
    prior: Literal["papers", "studies"] | None = Field(
        default=None,
        description="beliefs before the first trial: the settings of papers, or the best tenth of this "
        "home's earlier studies; default: the priors of the spaces' parameters",
    )
    stopped_trials: Literal["as_reported", "extrapolated"] = Field(
        default="as_reported", description="the value with which a trial stopped early counts"
    )
    options: dict[str, Scalar] = Field(
        default_factory=dict, description="options of the sampler of an installed package"
    )

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if self.kind not in BUILT_IN_KINDS and SAMPLERS.find(self.kind) is None:
            known = [*BUILT_IN_KINDS, *SAMPLERS.list_names()]
            raise ValueError(f'kind: no sampler "{self.kind}"; {did_you_mean(self.kind, known)}')
        if self.options and self.kind in BUILT_IN_KINDS:
            raise ValueError(f'kind = "{self.kind}" has no options; leave [sampler.options] out')
        return self
