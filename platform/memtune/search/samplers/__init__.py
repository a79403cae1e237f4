"""Samplers: which configuration a study tries next, given its earlier trials."""

from typing import Annotated

from memtune.search.samplers.built_in_samplers import (
    GaussianProcessConfig,
    GridConfig,
    Nsga2Config,
    RandomConfig,
    SobolConfig,
    TpeConfig,
)
from memtune.search.samplers.sampler import SamplerConfig, SamplerRegistry

SAMPLERS = SamplerRegistry(
    "sampler",
    "memtune.samplers",
    "kind",
    SamplerConfig,  # type: ignore[type-abstract]
    (TpeConfig, GaussianProcessConfig, Nsga2Config, RandomConfig, SobolConfig, GridConfig),
    default="tpe",
)
"""Kind in the study file -> the sampler's settings."""
AnySampler = Annotated[SamplerConfig, SAMPLERS]
"""The settings of a sampler of the registry, chosen by `kind`."""
