"""The sampler of each ask of a study.

TPE: Bergstra et al. (2011), "Algorithms for Hyper-Parameter Optimization", in its multivariate form.
Parameters that occur together are modelled together, so each branch of a space has its own model.
NSGA-II: Deb et al. (2002), "A Fast and Elitist Multiobjective Genetic Algorithm".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial
from pydantic import Field, model_validator

from memtune.errors import SpaceError, did_you_mean
from memtune.plugins import ObjectRegistry
from memtune.search.samplers.joint_space import (
    BranchSampler,
    JointSampler,
    JointSpace,
    OrderedNsga2Sampler,
    SobolSampler,
)
from memtune.search.samplers.observed_values import (
    MultiObjective,
    attach_objectives,
    complete_trials,
    extrapolate_stopped,
)
from memtune.search.samplers.prior_trials import PriorTrials
from memtune.spaces import Scalar, Space
from memtune.values import Value, digest


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


MULTI_OBJECTIVE_KINDS = ("tpe", "nsga2", "random", "qmc", "grid")
"""Samplers that can have several objectives."""

MAX_GRID_POINTS = 100_000


class SamplerFactory:
    """Makes the samplers of a study's asks.

    A sampler's random numbers follow from the seed and the ask's number, so a resumed study proposes exactly
    what an uninterrupted one proposes.
    """

    def __init__(
        self,
        config: SamplerConfig,
        space: Space,
        startup_trials: int,
        objectives: MultiObjective | None = None,
        prior_points: Sequence[Mapping[str, Scalar]] = (),
    ) -> None:
        """The sampler learns from the results once `startup_trials` trials have ended.

        Without `objectives` there is one, the trials' value. `prior_points` are parameters that are believed
        to be good, the best first.
        """
        self._objectives = objectives
        self._config, self._space, self._startup_trials = config, JointSpace(space), startup_trials
        follows_prior = config.kind == "tpe" and objectives is None
        self._prior = PriorTrials(prior_points if follows_prior else (), self._space)

    def make_sampler(self, ask_number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """The sampler of one ask. It learns from `trials` only, which are in the order of their numbers."""
        seed = int(digest(self._config.seed, ask_number)[:8], 16)
        kind = self._config.kind
        if kind == "qmc":
            return SobolSampler(self._space, self._config.seed, ask_number)
        startup = self._make_startup(seed, ask_number)
        if kind in ("random", "grid"):
            return RandomSampler(seed=seed)
        observed = (
            extrapolate_stopped(trials) if self._config.stopped_trials == "extrapolated" else list(trials)
        )
        if kind == "nsga2":
            return self._make_nsga2(seed, observed, startup)
        prior = self._prior.make_trials(ask_number, trials)
        if not prior and self._prior.count_startup(trials) < self._startup_trials:
            return startup
        if kind in SAMPLERS:
            own = SAMPLERS[kind](SamplerRequest(seed, self._config.options))
            return BranchSampler(own, self._attach(observed), self._space, self._objective_count)
        if kind == "gp":
            gp, completed = GPSampler(seed=seed, n_startup_trials=1), complete_trials(observed, self._space)
            return JointSampler(gp, completed, self._space, startup)
        tpe = TPESampler(seed=seed, n_startup_trials=0, multivariate=True)
        return BranchSampler(tpe, self._attach([*prior, *observed]), self._space, self._objective_count)

    @property
    def _objective_count(self) -> int:
        return 1 if self._objectives is None else self._objectives.count

    def _attach(self, trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
        """The trials with all objectives."""
        return trials if self._objectives is None else attach_objectives(trials, self._objectives)

    def _make_startup(self, seed: int, ask_number: int) -> BaseSampler:
        if self._config.startup == "sobol":
            return SobolSampler(self._space, self._config.seed, ask_number)
        return RandomSampler(seed=seed)

    def _make_nsga2(self, seed: int, observed: Sequence[FrozenTrial], startup: BaseSampler) -> BaseSampler:
        """NSGA-II with generations as large as the startup, which is its first generation.

        Children inherit the values of absent parameters, so these are drawn.
        """
        nsga2 = OrderedNsga2Sampler(population_size=max(2, self._startup_trials), seed=seed)
        completed = complete_trials(observed, self._space, is_absent_drawn=True)
        return JointSampler(nsga2, self._attach(completed), self._space, startup, self._objective_count)


def check_sampler(config: SamplerConfig, space: Space) -> None:
    """Raise SpaceError when the sampler cannot search the space: a grid needs a finite one."""
    if config.kind != "grid":
        return
    fields = (parameter.field for parameter in space.parameters() if parameter.leaf.size() is None)
    continuous = dict.fromkeys(fields)
    if continuous:
        raise SpaceError(
            f'{space.source}: sampler.kind = "grid" needs a finite space, and {", ".join(continuous)} '
            "have a continuous range; give them a step or a choice, or choose another kind"
        )
    if (size := space.size() or 0) > MAX_GRID_POINTS:
        raise SpaceError(
            f'{space.source}: sampler.kind = "grid" has {size:,} points, more than {MAX_GRID_POINTS:,}; '
            'fix some fields, or choose kind = "qmc"'
        )
