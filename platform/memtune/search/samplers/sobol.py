"""A scrambled Sobol sequence over the unit cube of a joint space.

Sobol (1967), "On the Distribution of Points in a Cube and the Approximate Evaluation of Integrals".
"""

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from memtune.search.samplers.joint_space import JointSpace


class SobolSampler(optuna.samplers.RandomSampler):
    """One point of the sequence; parameters outside of the joint space are drawn at random."""

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
        # Imported here: torch takes seconds, and most studies draw no Sobol point.
        import torch

        sequence: Any = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
            len(search_space), scramble=True, seed=self._sequence_seed
        )
        point: list[float] = sequence.fast_forward(self._index).draw(1, dtype=torch.float64)[0].tolist()
        return self._space.read_cube(point)
