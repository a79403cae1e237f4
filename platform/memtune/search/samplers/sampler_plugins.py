"""Samplers of installed packages: entry points `memtune.samplers`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optuna.samplers import BaseSampler

from memtune.plugins import ObjectRegistry
from memtune.spaces import Scalar

__all__ = ["SAMPLERS", "MakeSampler", "SamplerRequest"]


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
