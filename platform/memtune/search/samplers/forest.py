"""Expected improvement under a random forest over the fields that families share.

Hutter, Hoos and Leyton-Brown (2011), "Sequential Model-Based Optimization for General Algorithm
Configuration".
A feature is a field of the configuration, whatever its family or branch, so that trials of one family are
evidence about the others. A field that a configuration lacks has a separate value.

Shapes: N trials, C candidates, F features, T trees.
"""

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from memtune.search.compatibility import read_fixed_parameters
from memtune.search.samplers.cube_sampler import CubeSampler
from memtune.search.samplers.joint_space import JointSpace
from memtune.search.samplers.observed_values import get_final_value
from memtune.spaces import Integer, Parameter, Real, Scalar, Space

__all__ = ["FieldFeatures", "ForestSampler"]

RANDOM_CANDIDATES, NEIGHBOURS_PER_TRIAL, BEST_TRIALS = 1000, 50, 10
MUTATION_RATE, MUTATION_SCALE = 0.2, 0.1
"""Of a neighbour's coordinates in the unit cube: how many change, and by what standard deviation."""
TREES = 100
ABSENT = -1.0
"""Below every value of a feature."""

Matrix = NDArray[np.float64]


class FieldFeatures:
    """A configuration's fields as numbers: one for a number, one for each option of a choice."""

    def __init__(self, space: Space) -> None:
        self._parameters = [found for found in space.parameters() if found.leaf.test_values()]
        features = [key for found in self._parameters for key in _list_features(found)]
        self._columns = {key: column for column, key in enumerate(dict.fromkeys(features))}

    def compute(self, points: Sequence[Mapping[str, Scalar]]) -> Matrix:
        """Features NF of points, from the parameters that their choices need; others do not matter."""
        features_NF = np.full((len(points), len(self._columns)), ABSENT)
        for row, point in enumerate(points):
            for found in self._parameters:
                is_used = all(point.get(name, option) == option for name, option in found.conditions.items())
                if is_used and found.name in point:
                    self._write(features_NF[row], found, point[found.name])
        return features_NF

    def _write(self, row_F: Matrix, parameter: Parameter, value: Scalar) -> None:
        leaf = parameter.leaf
        if isinstance(leaf, Integer | Real):
            assert isinstance(value, int | float)
            row_F[self._columns[parameter.field, None]] = math.log(value) if leaf.log else value
            return
        for key in _list_features(parameter):
            row_F[self._columns[key]] = float(key[1] == value)


def _list_features(parameter: Parameter) -> list[tuple[str, Scalar]]:
    if isinstance(parameter.leaf, Integer | Real):
        return [(parameter.field, None)]
    return [(parameter.field, option) for option in parameter.leaf.test_values()]


class ForestSampler(CubeSampler):
    """The candidate of largest expected improvement among random points and neighbours of the best trials."""

    def __init__(self, space: JointSpace, features: FieldFeatures, seed: int) -> None:
        super().__init__(space, seed)
        self._features, self._draw_seed = features, seed

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A value of every parameter; of none while no trial has a value."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if not trials or not search_space:
            return {}
        fixed = read_fixed_parameters(trial)
        candidates = [{**drawn, **fixed} for drawn in self._draw_candidates(trials)]
        values_N = np.array([get_final_value(found) for found in trials])
        predictions_TC = self._predict(trials, values_N, candidates)
        gains_C = _compute_expected_improvement(
            predictions_TC.mean(axis=0), predictions_TC.std(axis=0), values_N.min()
        )
        return candidates[int(np.argmax(gains_C))]

    def _predict(
        self, trials: Sequence[FrozenTrial], values_N: Matrix, candidates: Sequence[Mapping[str, Scalar]]
    ) -> Matrix:
        # Imported here: scikit-learn takes a second, and most studies use another sampler.
        from sklearn.ensemble import RandomForestRegressor

        forest = RandomForestRegressor(
            n_estimators=TREES, max_features=5 / 6, min_samples_split=3, random_state=self._draw_seed
        )
        forest.fit(self._features.compute([found.params for found in trials]), values_N)
        features_CF = self._features.compute(candidates)
        return np.stack([tree.predict(features_CF) for tree in forest.estimators_])

    def _draw_candidates(self, trials: Sequence[FrozenTrial]) -> list[dict[str, Scalar]]:
        generator, dimensions = Random(self._draw_seed), len(self._space.distributions)
        points = [[generator.random() for _ in range(dimensions)] for _ in range(RANDOM_CANDIDATES)]
        for best in sorted(trials, key=get_final_value)[:BEST_TRIALS]:
            for _ in range(NEIGHBOURS_PER_TRIAL):
                origin = self._space.locate(best.params, [generator.random() for _ in range(dimensions)])
                points.append([_mutate(coordinate, generator) for coordinate in origin])
        return [self._space.read_cube(point) for point in points]


def _mutate(coordinate: float, generator: Random) -> float:
    if generator.random() >= MUTATION_RATE:
        return coordinate
    return min(max(generator.gauss(coordinate, MUTATION_SCALE), 0.0), 1.0)


def _compute_expected_improvement(mean_C: Matrix, deviation_C: Matrix, best: float) -> Matrix:
    """Expected decrease below `best` of normally distributed values (Jones et al., 1998, equation 15)."""
    # Where all trees agree, the quotient below would divide by zero.
    deviation_C = np.maximum(deviation_C, 1e-12)
    z_C = (best - mean_C) / deviation_C
    cumulative_C = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in z_C])
    density_C = np.exp(-(z_C**2) / 2) / math.sqrt(2 * math.pi)
    improvement_C: Matrix = deviation_C * (z_C * cumulative_C + density_C)
    return improvement_C
