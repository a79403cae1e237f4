"""Samplers: which of Optuna's proposes the next configuration, seeded afresh for every proposal.

TPE: Bergstra et al. (2011), "Algorithms for Hyper-Parameter Optimization", in its multivariate form; the
parameters that occur together are modelled together, so a branch's parameters have a model of their own.
"""

import warnings
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import Field

from memtune.values import Value, digest

__all__ = ["SamplerConfig", "make_sampler", "quiet"]


class SamplerConfig(Value):
    """How the next configuration is chosen: `startup_trials` at random, then by what the trials showed."""

    kind: Literal["tpe", "random", "gp"] = "tpe"
    seed: int = Field(default=0, ge=0)
    startup_trials: int = Field(default=10, ge=1)


def make_sampler(
    config: SamplerConfig, turn: int, trials: Sequence[FrozenTrial]
) -> optuna.samplers.BaseSampler:
    """The sampler of one turn, which learns from `trials`, in the order of their numbers, alone.

    Its random numbers follow from seed and turn: a study that was closed and opened again goes on exactly
    like one that never was.
    """
    return _Learner(_optunas(config, turn), trials)


def _optunas(config: SamplerConfig, turn: int) -> optuna.samplers.BaseSampler:
    seed = int(digest(config.seed, turn)[:8], 16)
    if config.kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if config.kind == "gp":
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=config.startup_trials, warn_independent_sampling=False
        )
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=config.startup_trials, group=True)


class _Learner(optuna.samplers.BaseSampler):
    """One of Optuna's samplers, shown a study that holds the given trials only."""

    def __init__(self, sampler: optuna.samplers.BaseSampler, trials: Sequence[FrozenTrial]) -> None:
        self._sampler, self._trials = sampler, trials

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """As Optuna's."""
        return self._sampler.infer_relative_search_space(self._shown(study), trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As Optuna's."""
        return self._sampler.sample_relative(self._shown(study), trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """As Optuna's."""
        return self._sampler.sample_independent(self._shown(study), trial, param_name, param_distribution)

    def _shown(self, study: optuna.Study) -> Any:
        return _Shown(study, self._trials)


class _Shown:
    """A study, with no other trials than these."""

    def __init__(self, study: optuna.Study, trials: Sequence[FrozenTrial]) -> None:
        self._study, self._trials = study, trials

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def _get_trials(
        self, deepcopy: bool = False, states: Container[TrialState] | None = None, use_cache: bool = True
    ) -> list[FrozenTrial]:
        """What Optuna's samplers ask; they change nothing of what they are given."""
        return [trial for trial in self._trials if states is None or trial.state in states]


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's remarks on new studies, missing accelerators and features it calls experimental."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
