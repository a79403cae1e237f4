"""Samplers: which of Optuna's proposes the next configuration, seeded afresh for every proposal.

TPE: Bergstra et al. (2011), "Algorithms for Hyper-Parameter Optimization", in its multivariate form; the
parameters that occur together are modelled together, so a branch's parameters have a model of their own.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import optuna
from pydantic import Field

from memtune.values import Value, digest

__all__ = ["SamplerConfig", "make_sampler", "quiet"]


class SamplerConfig(Value):
    """How the next configuration is chosen: `startup_trials` at random, then by what the trials showed."""

    kind: Literal["tpe", "random", "gp"] = "tpe"
    seed: int = Field(default=0, ge=0)
    startup_trials: int = Field(default=10, ge=1)


def make_sampler(config: SamplerConfig, turn: int) -> optuna.samplers.BaseSampler:
    """The sampler of one turn.

    Its random numbers follow from seed and turn alone, and everything else it knows comes from the study's
    storage: a study that was closed and opened again goes on exactly like one that never was.
    """
    seed = int(digest(config.seed, turn)[:8], 16)
    if config.kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if config.kind == "gp":
        return optuna.samplers.GPSampler(
            seed=seed, n_startup_trials=config.startup_trials, warn_independent_sampling=False
        )
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=config.startup_trials, group=True)


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
