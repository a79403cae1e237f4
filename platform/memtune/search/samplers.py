"""Optuna's samplers, with a new seed for each proposal.

TPE: Bergstra et al. (2011), "Algorithms for Hyper-Parameter Optimization", in its multivariate form.
Parameters that occur together are modelled together, so each branch of a space has its own model.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial
from pydantic import Field

from memtune.search.compatibility import RestrictedStudy
from memtune.values import Value, digest

__all__ = ["SamplerConfig", "make_sampler", "suppress_optuna_messages"]


class SamplerConfig(Value):
    """How a study samples configurations: `startup_trials` at random, then from earlier results."""

    kind: Literal["tpe", "random", "gp"] = "tpe"
    seed: int = Field(default=0, ge=0)
    startup_trials: int = Field(default=10, ge=1)


def make_sampler(
    config: SamplerConfig, ask_number: int, trials: Sequence[FrozenTrial]
) -> optuna.samplers.BaseSampler:
    """The sampler of one ask. It learns from `trials` only, which are in the order of their numbers.

    Its random numbers follow from the seed and the ask's number, so a resumed study proposes exactly what an
    uninterrupted one proposes.
    """
    return _WindowSampler(_make_optuna_sampler(config, ask_number), trials)


def _make_optuna_sampler(config: SamplerConfig, ask_number: int) -> optuna.samplers.BaseSampler:
    seed = int(digest(config.seed, ask_number)[:8], 16)
    if config.kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if config.kind == "gp":
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=config.startup_trials, warn_independent_sampling=False
        )
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=config.startup_trials, group=True)


class _WindowSampler(optuna.samplers.BaseSampler):
    """A sampler that learns from the given trials only."""

    def __init__(self, sampler: optuna.samplers.BaseSampler, trials: Sequence[FrozenTrial]) -> None:
        self._sampler, self._trials = sampler, trials

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """As the wrapped sampler, on the given trials."""
        return self._sampler.infer_relative_search_space(self._restrict_study(study), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the wrapped sampler, on the given trials."""
        return self._sampler.sample_relative(self._restrict_study(study), trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """As the wrapped sampler, on the given trials."""
        return self._sampler.sample_independent(
            self._restrict_study(study), trial, param_name, param_distribution
        )

    def _restrict_study(self, study: optuna.Study) -> Any:
        return RestrictedStudy(study, self._trials)


@contextmanager
def suppress_optuna_messages() -> Iterator[None]:
    """Suppress Optuna's messages below ERROR and its warnings about experimental features."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
