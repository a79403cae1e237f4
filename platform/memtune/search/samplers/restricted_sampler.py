"""Samplers of Optuna that learn from given trials, in a given search space."""

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from memtune.search.compatibility import RestrictedStudy
from memtune.search.samplers.joint_space import JointSpace

__all__ = ["BranchSampler", "JointSampler", "OrderedNsga2Sampler", "RestrictedSampler", "SobolSampler"]


class RestrictedSampler(optuna.samplers.BaseSampler):
    """A sampler that learns from the given trials only."""

    def __init__(
        self, sampler: optuna.samplers.BaseSampler, trials: Sequence[FrozenTrial], objectives: int = 1
    ) -> None:
        """The trials have a value of each of the `objectives`."""
        self._sampler, self._trials, self._objectives = sampler, trials, objectives

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
        return RestrictedStudy(study, self._trials, self._objectives)


class BranchSampler(RestrictedSampler):
    """A sampler that draws parameters together where a trial has them together.

    It draws the parameters outside of branches first, and then those of the branches that were chosen. What
    Optuna's own groups do, they draw for all branches, which takes a multiple of the time.
    """

    def __init__(
        self,
        sampler: optuna.samplers.BaseSampler,
        trials: Sequence[FrozenTrial],
        space: JointSpace,
        objectives: int = 1,
    ) -> None:
        super().__init__(sampler, trials, objectives)
        self._space = space

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of every branch."""
        return self._space.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A value of every parameter that the trial needs."""
        drawn: dict[str, Any] = {}
        for conditions, group in self._space.groups:
            if conditions.items() <= drawn.items():
                drawn |= super().sample_relative(study, trial, group)
        return drawn


class JointSampler(RestrictedSampler):
    """A sampler that learns from the given points of a joint space and draws such a point.

    The trial uses the values of the parameters that it needs, so a space may have branches. While the sampler
    draws nothing, `startup` does.
    """

    def __init__(
        self,
        sampler: optuna.samplers.BaseSampler,
        trials: Sequence[FrozenTrial],
        space: JointSpace,
        startup: optuna.samplers.BaseSampler,
        objectives: int = 1,
    ) -> None:
        super().__init__(sampler, trials, objectives)
        self._space, self._startup = space, startup

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of the joint space."""
        return self._space.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A value of every parameter, or of none where the startup sampler draws each by itself."""
        drawn = super().sample_relative(study, trial, search_space)
        return drawn or self._startup.sample_relative(study, trial, search_space)


class OrderedNsga2Sampler(optuna.samplers.NSGAIISampler):
    """NSGA-II whose parents are in the order of their numbers.

    Optuna orders the parents of a generation by rank for its first child and by number for the others. So a
    driver that is killed at the first child would draw another one when it is resumed.
    """

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        """The generation's parents, by number."""
        return sorted(super().select_parent(study, generation), key=lambda trial: trial.number)


class SobolSampler(optuna.samplers.RandomSampler):
    """One point of a scrambled Sobol sequence over a joint space.

    Sobol (1967), "On the Distribution of Points in a Cube and the Approximate Evaluation of Integrals".
    """

    def __init__(self, space: JointSpace, seed: int, index: int) -> None:
        """`index` is the point's place in the sequence of `seed`."""
        super().__init__(seed=seed + index)
        self._space, self._sequence_seed, self._index = space, seed, index

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of the joint space."""
        return self._space.distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The point's value of every parameter."""
        if not search_space:
            return {}
        return self._space.read_cube(
            _compute_sobol_point(len(search_space), self._sequence_seed, self._index)
        )


def _compute_sobol_point(dimensions: int, seed: int, index: int) -> list[float]:
    """A point of the unit cube."""
    # Imported here: torch takes seconds, and most studies draw no Sobol point.
    import torch

    sequence: Any = torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    point: list[float] = sequence.fast_forward(index).draw(1, dtype=torch.float64)[0].tolist()
    return point
