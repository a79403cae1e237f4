"""The sampler of each ask of a study.

TPE: Bergstra et al. (2011), "Algorithms for Hyper-Parameter Optimization", in its multivariate form.
Parameters that occur together are modelled together, so each branch of a space has its own model.
NSGA-II: Deb et al. (2002), "A Fast and Elitist Multiobjective Genetic Algorithm".

What is believed before the first trial are trials too, from which a sampler learns until it has its own: the
points of a prior stand for good ones and random points for bad ones, fewer of both the more trials have
ended.
"""

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Literal, Self

from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState
from pydantic import Field, model_validator

from memtune.errors import SpaceError, did_you_mean
from memtune.plugins import ObjectRegistry
from memtune.search.samplers import joint_space
from memtune.search.samplers.joint_space import JointSpace
from memtune.search.samplers.observed_values import (
    MultiObjective,
    attach_objectives,
    complete_trials,
    extrapolate_stopped,
)
from memtune.spaces import Scalar, Space
from memtune.values import Value, digest

MAX_PRIOR_POINTS = 20
MAX_TRIED_POINTS = 3
"""The points of a prior that are tried themselves."""
LAST_ASK = 40
"""Asks after which a prior has no weight any more."""
LED_EVERY = 2
"""Of so many asks the first one follows the prior."""
MIN_LED, MIN_FREE, MIN_SHARE = 3, 2, 0.6
"""A prior is given up where so many trials that it led, and so many others, have ended, and it was better in
less than this share of their pairs; without any effect it is better in half of them. Chosen on the recorded
tables of benchmarks/tables."""
GOOD_SHARE = 0.1
"""The share of trials that Optuna's TPE takes as good."""

Asked = Mapping[int, FrozenTrial]
"""The trials that a sampler learns from, by the number of their ask."""


class PriorTrials:
    """The prior of one study.

    It leads every second ask. The others are those of a study without a prior, but for what they learn from
    the led trials, so that they show whether the prior is wrong, and cover the space if it is.
    """

    def __init__(
        self,
        points: Sequence[Mapping[str, Scalar]],
        space: JointSpace,
        first_ask: int = 0,
        alternatives: Sequence[Mapping[str, Scalar]] = (),
    ) -> None:
        """`points` are parameters by name that are believed to be good, the best first.

        The first of the asks that the prior leads take points themselves. `first_ask` is the number of asks
        before it, without given ones. `alternatives` are the parameters that choose each alternative of the
        study.
        """
        self._points, self._space, self._first_ask = points[:MAX_PRIOR_POINTS], space, first_ask
        self.believed = {name for point in self._points for name in point}
        """The parameters of which any point has a value."""
        chosen = {name: None for choice in alternatives for name in choice}
        self.chooses_alternative = not self.believed.isdisjoint(chosen)
        self._compared = [] if self.chooses_alternative else [*chosen]
        """The parameters that trials have in common where the prior is judged by them."""

    def list_led(self, asks: int, asked: Asked, given: Container[int] = ()) -> list[int]:
        """Which of the first `asks` asks the prior leads; the last one may have no trial yet.

        It leads none of the `given` asks, whose configurations a program has chosen, and none after that at
        which the trials before contradicted it.
        """
        turns = [ask for ask in range(asks) if ask not in given][self._first_ask :][:LAST_ASK]
        led = turns[::LED_EVERY] if self._points else []
        for place in range(len(led)):
            if self._is_contradicted(turns[: LED_EVERY * place], asked):
                return led[:place]
        return led

    def find_point(self, led: Sequence[int], refused: Container[int]) -> Mapping[str, Scalar] | None:
        """The point that the last of the `led` asks takes; None for most.

        Each of them takes the next point, until three of them were not `refused`.
        """
        place = len(led) - 1
        tried = sum(ask not in refused for ask in led[:-1])
        return self._points[place] if tried < MAX_TRIED_POINTS and place < len(self._points) else None

    def make_trials(self, ask_number: int, asked: Asked, given: Container[int] = ()) -> list[FrozenTrial]:
        """The trials that stand for the prior at an ask, after those that were `asked` before; often none."""
        led = self.list_led(ask_number + 1, asked, given)
        if ask_number not in led:
            return []
        count = math.ceil(len(self._points) * (1 - LED_EVERY * led.index(ask_number) / LAST_ASK))
        generator, bad = Random(ask_number), math.ceil(count * (1 / GOOD_SHARE - 1))
        drawn = [self._space.draw_point(generator) for _ in range(count + bad)]
        good = [self._fill_point(*pair) for pair in zip(self._points[:count], drawn, strict=False)]
        return [self._make_trial(point, -math.inf) for point in good] + [
            self._make_trial(point, math.inf) for point in drawn[count:]
        ]

    def _is_contradicted(self, turns: Sequence[int], asked: Asked) -> bool:
        """Whether the trials that the prior led are worse than the others, by the last report of both.

        It led every second of the asks `turns`. A prior that says nothing of the alternatives is judged
        within each. A trial that failed, by divergence for instance, is not among `asked`, and worse than
        every other.
        """
        curves: dict[bool, list[FrozenTrial]] = {True: [], False: []}
        failed, last = {True: 0, False: 0}, max((ask for ask in turns if ask in asked), default=-1)
        for place, ask in enumerate(turns):
            is_led = place % LED_EVERY == 0
            if ask not in asked:
                failed[is_led] += ask < last
            elif asked[ask].state is not OptunaState.RUNNING and asked[ask].intermediate_values:
                curves[is_led].append(asked[ask])
        led, free = curves[True], curves[False]
        if len(led) + failed[True] < MIN_LED or len(free) + failed[False] < MIN_FREE:
            return False
        shares = [
            _compare_curves(own.intermediate_values, other.intermediate_values)
            for own in led
            for other in free
            if all(own.params.get(name) == other.params.get(name) for name in self._compared)
        ]
        shares += [0.0] * (failed[True] * len(free)) + [1.0] * (failed[False] * len(led))
        return len(shares) >= MIN_LED * MIN_FREE and fmean(shares) < MIN_SHARE

    def _fill_point(self, point: Mapping[str, Scalar], drawn: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """A point with drawn values of the parameters that other points have and this one needs.

        It has those of all options of a branch whose choice no point has.
        """
        filled: dict[str, Scalar] = {}
        for conditions, group in self._space.groups:
            if all(filled.get(name, option) == option for name, option in conditions.items()):
                filled |= {name: point.get(name, drawn[name]) for name in group if name in self.believed}
        return filled

    def _make_trial(self, parameters: Mapping[str, Scalar], value: float) -> FrozenTrial:
        distributions = {name: self._space.distributions[name] for name in parameters}
        return create_trial(params=dict(parameters), distributions=distributions, value=value)


def _compare_curves(own: Mapping[int, float], other: Mapping[int, float]) -> float:
    """1 where the first is better at the end of the shorter one, 0 where it is worse, 1/2 otherwise.

    Reports of two trainings lie up to a batch apart.
    """
    end = min(max(own), max(other))
    first, second = (curve[min(curve, key=lambda tokens: abs(tokens - end))] for curve in (own, other))
    return (first < second) + (first == second) / 2


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
    startup: Literal["random", "sobol"] = "random"
    """How configurations are drawn before the sampler learns."""
    startup_trials: int = Field(default=10, ge=1, json_schema_extra={"unit": "trials"})
    """Trials before the sampler learns, two per family at least."""
    prior: Literal["papers", "studies", "none"] | None = None
    """Beliefs before the first trial: the settings of papers, the best tenth of this home's earlier studies,
    or none; default: the priors of the spaces' parameters."""
    stopped_trials: Literal["as_reported", "extrapolated"] = "as_reported"
    """The value with which a trial stopped early counts."""
    options: dict[str, Scalar] = Field(default_factory=dict)
    """Options of the sampler of an installed package."""

    def follows_prior(self, objectives: int) -> bool:
        """Whether a prior leads the sampler in a study with so many objectives."""
        return self.kind == "tpe" and objectives == 1

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
        first_ask: int = 0,
        alternatives: Sequence[Mapping[str, Scalar]] = (),
    ) -> None:
        """The sampler learns from the results once `startup_trials` trials have ended.

        Without `objectives` there is one, the trials' value. The asks before `first_ask` take points of the
        study. `prior_points` and `alternatives` are those of `PriorTrials`.
        """
        self._objectives, self._objective_count = objectives, objectives.count if objectives else 1
        self._config, self._space, self._startup_trials = config, JointSpace(space), startup_trials
        points = prior_points if config.follows_prior(self._objective_count) else ()
        self.prior = PriorTrials(points, self._space, first_ask, alternatives)

    def make_sampler(self, ask_number: int, asked: Asked, given: Container[int] = ()) -> BaseSampler:
        """The sampler of one ask. It learns from `asked` only, which are in the order of their numbers.

        No prior leads the `given` asks, as in `PriorTrials.list_led`.
        """
        seed = int(digest(self._config.seed, ask_number)[:8], 16)
        kind, drawn = self._config.kind, RandomSampler(seed=seed)
        sobol = joint_space.SobolSampler(self._space, self._config.seed, ask_number)
        if kind in ("qmc", "random", "grid"):
            return sobol if kind == "qmc" else drawn
        startup = sobol if self._config.startup == "sobol" else drawn
        trials = list(asked.values())
        observed = extrapolate_stopped(trials) if self._config.stopped_trials == "extrapolated" else trials
        if kind == "nsga2":
            # Generations are as large as the startup, the first one. Children inherit the values of absent
            # parameters, so these are drawn, by the ask: a killed driver leaves a gap in the trials' numbers.
            nsga2 = joint_space.OrderedNsga2Sampler(population_size=max(2, self._startup_trials), seed=seed)
            ask_by_number = {trial.number: ask for ask, trial in asked.items()}
            completed = self._attach(complete_trials(observed, self._space, ask_by_number))
            return joint_space.RestrictedSampler(
                nsga2, completed, self._space, self._objective_count, startup
            )
        prior = self.prior.make_trials(ask_number, asked, given)
        ended = sum(trial.state is not OptunaState.RUNNING for trial in trials)
        is_startup = ended < self._startup_trials
        if is_startup and not prior:
            return startup
        if kind == "gp":
            gp, completed = GPSampler(seed=seed, n_startup_trials=1), complete_trials(observed, self._space)
            return joint_space.RestrictedSampler(gp, completed, self._space, startup=startup)
        learnt, space = self._attach(observed), self._space
        if kind in SAMPLERS:
            own = SAMPLERS[kind](SamplerRequest(seed, self._config.options))
            return joint_space.BranchSampler(own, learnt, space, self._objective_count)
        tpe, free_tpe = (TPESampler(seed=seed, n_startup_trials=0, multivariate=True) for _ in range(2))
        if not prior:
            return joint_space.BranchSampler(tpe, learnt, space, self._objective_count)
        free = startup if is_startup else joint_space.RestrictedSampler(free_tpe, learnt, space)
        led = self._attach([*prior, *observed])
        return joint_space.BranchSampler(tpe, led, space, free=free, believed=self.prior.believed)

    def _attach(self, trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
        """The trials with all objectives."""
        return trials if self._objectives is None else attach_objectives(trials, self._objectives)


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
