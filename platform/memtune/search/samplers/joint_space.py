"""A space with branches as one fixed search space, in which each trial has a value of every parameter.

Gaussian processes and Sobol sequences need points of a fixed number of dimensions. A trial has only
the parameters of the branches that it chose, and the others are filled in. A sampled point has a value of
every parameter, and a trial uses those of the branches that it chooses.

Sobol (1967), "On the Distribution of Points in a Cube and the Approximate Evaluation of Integrals".
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, RandomSampler
from optuna.trial import FrozenTrial

from memtune.search.compatibility import RestrictedStudy, read_enqueued
from memtune.spaces import Categorical, Integer, Real, Scalar, Space

Ranges = dict[str, BaseDistribution]
"""The distribution of each parameter, by name."""


class JointSpace:
    """The parameters of a space that have at least two values, in the order of its file.

    The unit cube has one coordinate in [0, 1] for each of them. Values of equal probability take intervals of
    equal length.
    """

    def __init__(self, space: Space) -> None:
        self.distributions: Ranges = {
            parameter.name: distribution
            for parameter in space.parameters()
            if (distribution := _make_distribution(parameter.leaf)) and not distribution.single()
        }
        groups: dict[tuple[tuple[str, str], ...], Ranges] = {}
        for parameter in space.parameters():
            if parameter.name in self.distributions:
                group = groups.setdefault(tuple(parameter.conditions.items()), {})
                group[parameter.name] = self.distributions[parameter.name]
        self.groups = [(dict(conditions), group) for conditions, group in groups.items()]
        """The parameters by the choices of branches under which a trial has them, outer branches first."""
        self._middle = self.read_cube([0.5] * len(self.distributions))

    def fill_absent(self, parameters: Mapping[str, Scalar], seed: int | None = None) -> dict[str, Scalar]:
        """A trial's parameters, with the middle of the range for each parameter that it lacks.

        Two trials that both lack a parameter do not differ in it. With a seed, its value is drawn.
        """
        filling = self._middle if seed is None else self.draw_point(Random(seed))
        return {name: parameters.get(name, value) for name, value in filling.items()}

    def draw_point(self, generator: Random) -> dict[str, Scalar]:
        """The parameters at a random point of the unit cube."""
        return self.read_cube([generator.random() for _ in self.distributions])

    def read_cube(self, point: Sequence[float]) -> dict[str, Scalar]:
        """The parameters at a point of the unit cube."""
        return {
            name: _read_coordinate(distribution, coordinate)
            for (name, distribution), coordinate in zip(self.distributions.items(), point, strict=True)
        }


def _make_distribution(leaf: Any) -> BaseDistribution | None:
    """Optuna's distribution of a parameter, as its chooser makes it; None for a solved parameter."""
    if isinstance(leaf, Integer):
        return IntDistribution(leaf.low, leaf.high, log=leaf.log, step=leaf.step)
    if isinstance(leaf, Real):
        return FloatDistribution(leaf.low, leaf.high, log=leaf.log, step=leaf.step)
    return CategoricalDistribution(leaf.choices) if isinstance(leaf, Categorical) else None


def _read_coordinate(distribution: BaseDistribution, coordinate: float) -> Scalar:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[_find_interval(coordinate, len(distribution.choices))]
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    if distribution.log:
        # An integer stands for the interval of ±0.5 around it.
        margin = 0.5 if isinstance(distribution, IntDistribution) else 0.0
        low, high = low - margin, high + margin
        value = math.exp(math.log(low) + coordinate * (math.log(high) - math.log(low)))
    elif step:
        value = low + step * _find_interval(coordinate, round((high - low) / step) + 1)
    else:
        value = low + coordinate * (high - low)
    value = min(max(value, distribution.low), distribution.high)
    return round(value) if isinstance(distribution, IntDistribution) else value


def _find_interval(coordinate: float, count: int) -> int:
    return min(int(coordinate * count), count - 1)


class SobolSampler(RandomSampler):
    """One point of the sequence; parameters outside of the joint space are drawn at random."""

    def __init__(self, space: JointSpace, seed: int, index: int) -> None:
        """`index` is the point's place in the sequence of `seed`."""
        super().__init__(seed=seed + index)
        self._space, self._sequence_seed, self._index = space, seed, index

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Ranges:
        """Every parameter of the joint space."""
        return self._space.distributions

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Ranges) -> dict[str, Any]:
        """The point's value of each parameter of `search_space`, which may be a part of the joint space."""
        if not search_space:
            return {}
        # Imported here: torch takes seconds, and most studies draw no Sobol point.
        import torch

        sequence: Any = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
            len(self._space.distributions), scramble=True, seed=self._sequence_seed
        )
        point: list[float] = sequence.fast_forward(self._index).draw(1, dtype=torch.float64)[0].tolist()
        return {name: value for name, value in self._space.read_cube(point).items() if name in search_space}


@dataclass(eq=False)
class RestrictedSampler(BaseSampler):
    """A sampler of a joint space that learns from the given trials only.

    The trials have a value of each of the `objectives`. A trial uses the values of the parameters that it
    needs, so a space may have branches. While the sampler draws nothing, `startup` does where there is one.
    """

    sampler: BaseSampler
    trials: Sequence[FrozenTrial]
    space: JointSpace
    objectives: int = 1
    startup: BaseSampler | None = None

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> Ranges:
        """Every parameter of the joint space."""
        return self.space.distributions

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Ranges) -> dict[str, Any]:
        """As the wrapped sampler, on the given trials; of none where a sampler draws each by itself."""
        drawn = self.sampler.sample_relative(self._restrict_study(study), trial, search_space)
        if drawn or self.startup is None:
            return drawn
        return self.startup.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """As the wrapped sampler, on the given trials."""
        study = self._restrict_study(study)
        return self.sampler.sample_independent(study, trial, param_name, param_distribution)

    def _restrict_study(self, study: Study) -> Any:
        return RestrictedStudy(study, self.trials, self.objectives)


@dataclass(eq=False)
class BranchSampler(RestrictedSampler):
    """A sampler that draws parameters together where a trial has them together.

    It draws the parameters outside of branches first, and then those of the branches that were chosen. What
    Optuna's own groups do, they draw for all branches, which takes a multiple of the time. Where there is a
    `free` sampler, it draws the parameters that are not `believed`.
    """

    free: BaseSampler | None = None
    believed: Collection[str] = ()

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: Ranges) -> dict[str, Any]:
        """A value of every parameter that the trial needs."""
        drawn = read_enqueued(trial)
        for conditions, group in self.space.groups:
            if conditions.items() <= drawn.items():
                drawn = self._sample_group(study, trial, group, drawn)
        return drawn

    def _sample_group(
        self, study: Study, trial: FrozenTrial, group: Ranges, drawn: dict[str, Any]
    ) -> dict[str, Any]:
        """`drawn`, which stays as it is, with a value of every parameter of the group."""
        if self.free is None:
            return super().sample_relative(study, trial, group) | drawn
        led = {name: each for name, each in group.items() if name in self.believed}
        free = {name: each for name, each in group.items() if name not in led}
        drawn = (super().sample_relative(study, trial, led) if led else {}) | drawn
        drawn = (self.free.sample_relative(study, trial, free) if free else {}) | drawn
        # A random sampler draws each parameter by itself.
        absent = [name for name in free if name not in drawn]
        return drawn | {n: self.free.sample_independent(study, trial, n, free[n]) for n in absent}


class OrderedNsga2Sampler(NSGAIISampler):
    """NSGA-II whose parents are in the order of their numbers.

    Optuna orders the parents of a generation by rank for its first child and by number for the others. So a
    driver that is killed at the first child would draw another one when it is resumed.
    """

    def select_parent(self, study: Study, generation: int) -> list[FrozenTrial]:
        """The generation's parents, by number."""
        return sorted(super().select_parent(study, generation), key=lambda trial: trial.number)
