"""The interface between Optuna and samplers that draw a point of a joint space."""

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from memtune.search.samplers.joint_space import JointSpace

__all__ = ["CubeSampler"]


class CubeSampler(optuna.samplers.RandomSampler):
    """Base of samplers that draw all parameters of a joint space together.

    Parameters outside of the joint space are drawn at random, each by itself.
    """

    def __init__(self, space: JointSpace, seed: int) -> None:
        """`seed` is that of the parameters outside of the joint space."""
        super().__init__(seed=seed)
        self._space = space

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Every parameter of the joint space."""
        return self._space.distributions
