"""Covariance matrix adaptation over the unit cube of a joint space.

Hansen (2016), "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772, figure 6 with positive weights.
Optuna's own CMA-ES stores its state as a pickle in the study's storage; this one stores numbers.

Shapes: N dimensions, M parents.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from memtune.search.compatibility import read_sampler_attributes, write_sampler_attribute
from memtune.search.samplers.cube_sampler import CubeSampler
from memtune.search.samplers.joint_space import JointSpace
from memtune.search.samplers.observed_values import get_final_value

__all__ = ["CmaEsSampler", "CmaState", "EvolutionStrategy"]

STATE_KEY, POINT_KEY, GENERATION_KEY = "cmaes:state", "cmaes:point", "cmaes:generation"
INITIAL_STEP_SIZE = 0.2
"""As a share of each parameter's range."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class CmaState:
    """The distribution of one generation, as plain numbers."""

    generation: int
    mean: list[float]
    step_size: float
    covariance: list[list[float]]
    step_path: list[float]
    covariance_path: list[float]


class EvolutionStrategy:
    """The strategy of N dimensions with the tutorial's default constants."""

    def __init__(self, dimensions: int) -> None:
        n = dimensions
        self.population = 4 + int(3 * math.log(n))
        raw_M = math.log((self.population + 1) / 2) - np.log(np.arange(1, self.population // 2 + 1))
        self._weights_M: Vector = raw_M / raw_M.sum()
        mass = self._mass = float(1 / (self._weights_M**2).sum())
        self._step_rate = (mass + 2) / (n + mass + 5)
        self._step_damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (n + 1)) - 1) + self._step_rate
        self._path_rate = (4 + mass / n) / (n + 4 + 2 * mass / n)
        self._one_rate = 2 / ((n + 1.3) ** 2 + mass)
        self._mean_rate = min(1 - self._one_rate, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
        self._expected_length = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))

    def start(self, mean: Sequence[float]) -> CmaState:
        """The first generation, around `mean`."""
        n = len(mean)
        return CmaState(0, list(mean), INITIAL_STEP_SIZE, np.eye(n).tolist(), [0.0] * n, [0.0] * n)

    def sample(self, state: CmaState, seed: int) -> list[float]:
        """A point of the unit cube; a point outside of it is moved to its edge."""
        scales_N, axes_NN = _decompose(state)
        normal_N = np.random.default_rng(seed).standard_normal(len(scales_N))
        point_N = np.asarray(state.mean) + state.step_size * (axes_NN @ (scales_N * normal_N))
        return [float(coordinate) for coordinate in np.clip(point_N, 0.0, 1.0)]

    def update(self, state: CmaState, points: Sequence[Sequence[float]]) -> CmaState:
        """The next generation, from this generation's points, the best first."""
        n = len(state.mean)
        parents_MN = np.asarray(points[: len(self._weights_M)])
        steps_MN = (parents_MN - np.asarray(state.mean)) / state.step_size
        step_N = self._weights_M @ steps_MN
        scales_N, axes_NN = _decompose(state)
        whitened_N = axes_NN @ ((axes_NN.T @ step_N) / scales_N)
        step_path_N = _advance_path(state.step_path, whitened_N, self._step_rate, self._mass)
        length = float(np.linalg.norm(step_path_N))
        decay = 1 - (1 - self._step_rate) ** (2 * (state.generation + 1))
        is_steady = length / math.sqrt(decay) < (1.4 + 2 / (n + 1)) * self._expected_length
        path_N = _advance_path(state.covariance_path, is_steady * step_N, self._path_rate, self._mass)
        covariance_NN = self._adapt_covariance(state, steps_MN, path_N, is_steady)
        growth = self._step_rate / self._step_damping * (length / self._expected_length - 1)
        return CmaState(
            state.generation + 1,
            np.clip(np.asarray(state.mean) + state.step_size * step_N, 0.0, 1.0).tolist(),
            state.step_size * math.exp(min(1.0, growth)),
            covariance_NN.tolist(),
            step_path_N.tolist(),
            path_N.tolist(),
        )

    def _adapt_covariance(self, state: CmaState, steps_MN: Vector, path_N: Vector, is_steady: bool) -> Vector:
        """The covariance with the rank-one and rank-M updates (equation 47)."""
        old_NN = np.asarray(state.covariance)
        correction = (1 - is_steady) * self._path_rate * (2 - self._path_rate)
        rank_one_NN = np.outer(path_N, path_N) + correction * old_NN
        rank_m_NN = (steps_MN.T * self._weights_M) @ steps_MN
        kept = 1 - self._one_rate - self._mean_rate
        adapted: Vector = kept * old_NN + self._one_rate * rank_one_NN + self._mean_rate * rank_m_NN
        return adapted


def _decompose(state: CmaState) -> tuple[Vector, Vector]:
    """Standard deviations along the principal axes, and the axes as columns."""
    variances_N, axes_NN = np.linalg.eigh(np.asarray(state.covariance))
    # Rounding may give a variance of zero or below, whose root and inverse the next draw needs.
    return np.sqrt(np.maximum(variances_N, 1e-20)), axes_NN


def _advance_path(path: Sequence[float], step_N: Vector, rate: float, mass: float) -> Vector:
    advanced: Vector = (1 - rate) * np.asarray(path) + math.sqrt(rate * (2 - rate) * mass) * step_N
    return advanced


class CmaEsSampler(CubeSampler):
    """One draw of the strategy, whose state is held by the trials of the study.

    Each trial holds its point and generation. The trial whose ask ends a generation holds the next one's
    state, so that a resumed study has the state of an uninterrupted one.
    """

    def __init__(self, space: JointSpace, seed: int, trials: Sequence[FrozenTrial]) -> None:
        """`trials` hold the state. The study holds the same trials as points of the joint space."""
        super().__init__(space, seed)
        self._draw_seed, self._trials = seed, {trial.number: trial for trial in trials}
        self._strategy = EvolutionStrategy(max(1, len(space.distributions)))

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A value of every parameter from the present generation."""
        if not search_space:
            return {}
        completed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        stored = self._find_state()
        state = stored or self._strategy.start(self._find_best_point(completed))
        points = self._list_points(completed, state.generation)
        if len(points) >= self._strategy.population:
            state = self._strategy.update(state, points)
        if state != stored:
            write_sampler_attribute(study, trial, STATE_KEY, asdict(state))
        point = self._strategy.sample(state, self._draw_seed)
        write_sampler_attribute(study, trial, POINT_KEY, point)
        write_sampler_attribute(study, trial, GENERATION_KEY, state.generation)
        return self._space.read_cube(point)

    def _find_state(self) -> CmaState | None:
        attributes = [read_sampler_attributes(trial) for trial in self._trials.values()]
        states = [found[STATE_KEY] for found in attributes if STATE_KEY in found]
        return CmaState(**max(states, key=lambda state: state["generation"])) if states else None

    def _find_best_point(self, completed: Sequence[FrozenTrial]) -> list[float]:
        centre = [0.5] * len(self._space.distributions)
        if not completed:
            return centre
        return self._locate(min(completed, key=get_final_value), centre)

    def _list_points(self, completed: Sequence[FrozenTrial], generation: int) -> list[list[float]]:
        """The points of the generation's first trials, the best first; a trial may have fixed parameters."""
        own = [
            trial for trial in completed if read_sampler_attributes(trial).get(GENERATION_KEY) == generation
        ]
        ranked = sorted(own[: self._strategy.population], key=get_final_value)
        return [self._locate(trial, read_sampler_attributes(trial)[POINT_KEY]) for trial in ranked]

    def _locate(self, trial: FrozenTrial, near: Sequence[float]) -> list[float]:
        """The trial's point; a parameter that it does not use has the coordinate of `near`."""
        return self._space.locate(self._trials[trial.number].params, near)
