"""Samplers of Optuna that learn from given trials, in a joint space."""

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from memtune.search.compatibility import RestrictedStudy
from memtune.search.samplers.joint_space import JointSpace


class RestrictedSampler(optuna.samplers.BaseSampler):
    """A sampler of a joint space that learns from the given trials only."""

    def __init__(
        self,
        sampler: optuna.samplers.BaseSampler,
        trials: Sequence[FrozenTrial],
        space: JointSpace,
        objectives: int = 1,
    ) -> None:
        """The trials have a value of each of the `objectives`."""
        self._sampler, self._trials, self._space, self._objectives = sampler, trials, space, objectives

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of the joint space."""
        return self._space.distributions

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
        super().__init__(sampler, trials, space, objectives)
        self._startup = startup

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
