"""The samplers of memtune: settings that make Optuna's samplers and Sobol points.

TPE: Bergstra et al. (2011), "Algorithms for Hyper-Parameter Optimization", in its multivariate form.
Parameters that occur together are modelled together, so each branch of a space has its own model.
NSGA-II: Deb et al. (2002), "A Fast and Elitist Multiobjective Genetic Algorithm".
"""

from functools import partial
from typing import ClassVar, Literal

from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from typing_extensions import override

from memtune.search.samplers.joint_space import (
    BranchSampler,
    OrderedNsga2Sampler,
    RestrictedSampler,
    SobolSampler,
)
from memtune.search.samplers.observed_values import attach_objectives, complete_trials
from memtune.search.samplers.sampler import SamplerConfig, SamplerRequest


class TpeConfig(SamplerConfig):
    """What good trials have and bad ones lack (Bergstra et al., 2011); the default."""

    kind: Literal["tpe"] = "tpe"
    can_follow_prior: ClassVar[bool] = True

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        prior = request.prior.make_trials(request.led) if request.led else []
        if request.is_startup and not prior:
            return self.make_startup(request)
        make_tpe = partial(TPESampler, seed=request.seed, n_startup_trials=0, multivariate=True)
        observed, space, objectives = self.observe(request), request.space, request.objectives
        if not prior:
            learnt = attach_objectives(observed, objectives)
            return BranchSampler(make_tpe(), learnt, space, objectives.count)
        learning = RestrictedSampler(make_tpe(), observed, space)
        free = self.make_startup(request) if request.is_startup else learning
        led, believed = [*prior, *observed], request.prior.believed
        return BranchSampler(make_tpe(), led, space, free=free, believed=believed)


class GaussianProcessConfig(SamplerConfig):
    """The largest expected improvement under a Gaussian process (Optuna's GPSampler); for small spaces."""

    kind: Literal["gp"] = "gp"
    can_have_several_objectives: ClassVar[bool] = False

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        startup = self.make_startup(request)
        if request.is_startup:
            return startup
        completed = complete_trials(self.observe(request), request.space)
        gp = GPSampler(seed=request.seed, n_startup_trials=1)
        return RestrictedSampler(gp, completed, request.space, startup=startup)


class Nsga2Config(SamplerConfig):
    """Crossings of the best trials, in generations of `startup_trials` (Deb et al., 2002)."""

    kind: Literal["nsga2"] = "nsga2"

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        # Generations are as large as the startup, the first one. Children inherit the values of absent
        # parameters, so these are drawn, by the ask: a killed driver leaves a gap in the trials' numbers.
        nsga2 = OrderedNsga2Sampler(population_size=max(2, request.startup_trials), seed=request.seed)
        ask_by_number = {trial.number: ask for ask, trial in request.asked.items()}
        completed = complete_trials(self.observe(request), request.space, ask_by_number)
        attached, count = attach_objectives(completed, request.objectives), request.objectives.count
        return RestrictedSampler(nsga2, attached, request.space, count, self.make_startup(request))


class RandomConfig(SamplerConfig):
    """Independent uniform draws; a baseline."""

    kind: Literal["random"] = "random"

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        return RandomSampler(seed=request.seed)


class SobolConfig(SamplerConfig):
    """Points of a scrambled Sobol sequence, which fill the space evenly (Sobol, 1967)."""

    kind: Literal["qmc"] = "qmc"

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        return SobolSampler(request.space, self.seed, request.number)


class GridConfig(SamplerConfig):
    """Every point of a finite space once, in random order; for studies over one parameter."""

    kind: Literal["grid"] = "grid"
    tries_every_point: ClassVar[bool] = True

    @override
    def make_sampler(self, request: SamplerRequest) -> BaseSampler:
        return RandomSampler(seed=request.seed)  # of what a given point leaves out
