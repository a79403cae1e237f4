"""A scrambled Sobol sequence over the unit cube of a joint space.

Sobol (1967), "On the Distribution of Points in a Cube and the Approximate Evaluation of Integrals".
"""

from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from memtune.search.samplers.cube_sampler import CubeSampler
from memtune.search.samplers.joint_space import JointSpace

__all__ = ["SobolSampler"]


class SobolSampler(CubeSampler):
    """One point of the sequence."""

    def __init__(self, space: JointSpace, seed: int, index: int) -> None:
        """`index` is the point's place in the sequence of `seed`."""
        super().__init__(space, seed + index)
        self._sequence_seed, self._index = seed, index

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
