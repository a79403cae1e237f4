"""The learning curve of any configuration of a recorded space, interpolated from a table.

Extremely randomised trees (Geurts et al. 2006) over whole curves interpolate between the recorded
configurations, and recorded differences between two seeds of one configuration are added as noise. Every
method sees the same curves. Known limits: the trees are flat between the points that they know, so a
landscape has fewer distinct optima than the real one; a method that models with trees itself is at an
advantage; few pairs of seeds stand for the noise of all configurations.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.model_selection import KFold

from benchmarks.tables.curve_table import Curve, CurveTable
from memtune.spaces import Categorical, RandomChooser, Scalar, Space
from memtune.spaces.space_tree import Leaf
from memtune.values import digest

__all__ = ["Landscape", "SimulatedCurve"]

TREES = 200
FOLDS = 10
REFERENCE_POINTS = 4000
"""Random configurations whose best final cost is the goal of a search."""
OUTLIER_SCALE = 4.0
"""Seed differences beyond this number of robust standard deviations are failures, which only add cost."""
ABSENT = -1.0
LOG_OFFSET = 10.0
"""Keeps logarithms above ABSENT."""
SIMILAR_PAIRS = 6
"""Pairs of seeds from which the noise of a configuration is drawn."""
MAX_GAIN_DEVIATIONS = 2.0
"""Standard deviations of a final cost by which a seed may be better than the mean, at any report."""
FLOOR_MARGIN = 0.1
"""Nats between the lowest recorded cost and the origin of the logarithmic scale."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedCurve:
    """Costs per report as one training reports them, as the mean over seeds, and CPU seconds so far."""

    costs: tuple[float, ...]
    mean_costs: tuple[float, ...]
    seconds: tuple[float, ...]


class Landscape:
    """The learning curves of a space, interpolated from a table."""

    def __init__(self, table: CurveTable, space: Space) -> None:
        self.space, self.report_tokens = space, _list_report_tokens(table)
        self._encoder = _Encoder(space)
        self._curves = [curve for curve in table.curves if curve.seed == 0]
        self._scale = _CostScale(self._curves)
        features = self._encode_all(self._curves)
        self._cost_trees = _Forest(features, self._scale.encode(self._curves, len(self.report_tokens)))
        self._second_trees = _Forest(features, _encode_seconds(self._curves))
        self._noise = _SeedNoise(table, len(self.report_tokens))

    def draw_curve(self, parameters: Mapping[str, Scalar], noise_seed: int) -> SimulatedCurve:
        """The curve of a configuration; equal parameters and seeds give equal curves."""
        row = self._encoder.encode(parameters)
        means = self._scale.decode(self._cost_trees.predict(row))
        noise = self._noise.draw(parameters, float(means[-1]), noise_seed)
        per_report = math.exp(self._second_trees.predict(row)[0])
        seconds = per_report * np.arange(1, len(means) + 1)
        return SimulatedCurve(*(tuple(map(float, each)) for each in (means + noise, means, seconds)))

    @cached_property
    def best_cost(self) -> float:
        """The lowest mean final cost of the random reference configurations."""
        return min(self._draw_final_cost(seed) for seed in range(REFERENCE_POINTS))

    def _draw_final_cost(self, seed: int) -> float:
        parameters = draw_parameters(self.space, seed)
        return float(self._scale.decode(self._cost_trees.predict(self._encoder.encode(parameters)))[-1])

    def cross_validate(self) -> float:
        """Spearman correlation of predicted and recorded final costs, each predicted by the other folds."""
        features = self._encode_all(self._curves)
        targets = self._scale.encode(self._curves, len(self.report_tokens))
        predicted = np.empty(len(features))
        for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(features):
            forest = _Forest(features[train], targets[train])
            predicted[test] = [forest.predict(row)[-1] for row in features[test]]
        return float(spearmanr(predicted, targets[:, -1]).statistic)

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of a final cost over seeds, failed trainings left out, in nats."""
        return self._noise.deviation

    def _encode_all(self, curves: Sequence[Curve]) -> Array:
        return np.array([self._encoder.encode(curve.parameters) for curve in curves])


def draw_parameters(space: Space, seed: int) -> dict[str, Scalar]:
    """A random point of a space, by the names of its parameters."""
    chooser = RandomChooser(seed)
    space.sample(chooser)
    return chooser.parameters


def _list_report_tokens(table: CurveTable) -> tuple[int, ...]:
    training = table.study["training"]
    return tuple(range(training["report_every"], training["tokens"] + 1, training["report_every"]))


class _Encoder:
    """Parameters as numbers: fields that families share have one column, absent ones are -1."""

    def __init__(self, space: Space) -> None:
        self._families = [str(choice["family"]) for choice in space.family_choices()]
        self._columns: dict[str, int] = {}
        self._choices: dict[str, list[Scalar]] = {}
        self._logarithmic: set[str] = set()
        for parameter in space.parameters():
            name = _strip_family(parameter.name)
            if name:
                self._columns.setdefault(name, len(self._columns))
                self._add_leaf(name, parameter.leaf)

    def _add_leaf(self, name: str, leaf: Leaf) -> None:
        """Families may give one field different choices; the column has the choices of all."""
        if isinstance(leaf, Categorical):
            known = self._choices.setdefault(name, [])
            known.extend(choice for choice in leaf.choices if choice not in known)
        elif getattr(leaf, "log", False):
            self._logarithmic.add(name)

    def encode(self, parameters: Mapping[str, Scalar]) -> Array:
        """The row of a configuration."""
        row = np.full(len(self._columns) + len(self._families), ABSENT)
        for full_name, value in parameters.items():
            if name := _strip_family(full_name):
                row[self._columns[name]] = self._encode_value(name, value)
        row[len(self._columns) :] = [family == parameters["family"] for family in self._families]
        return row

    def _encode_value(self, name: str, value: Scalar) -> float:
        if name in self._choices:
            return float(self._choices[name].index(value))
        assert isinstance(value, int | float)
        return math.log10(value) + LOG_OFFSET if name in self._logarithmic else float(value)


def _strip_family(name: str) -> str:
    """The name of a parameter within its family; empty for the choice of the family itself."""
    return name.partition(".")[2]


class _CostScale:
    """log(cost - floor), in which differences among good configurations weigh as much as among bad ones."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        costs = [cost for curve in curves for cost in curve.costs if not math.isnan(cost)]
        self._floor, self._worst = min(costs) - FLOOR_MARGIN, max(costs)

    def encode(self, curves: Sequence[Curve], reports: int) -> Array:
        """A row per curve; what a diverged training did not report is the worst recorded cost."""
        rows = np.full((len(curves), reports), self._worst)
        for row, curve in zip(rows, curves, strict=True):
            row[: len(curve.costs)] = np.nan_to_num(curve.costs, nan=self._worst)
        return np.log(rows - self._floor)

    def decode(self, encoded: Array) -> Array:
        """The costs of an encoded row."""
        return np.exp(encoded) + self._floor


def _encode_seconds(curves: Sequence[Curve]) -> Array:
    return np.log([[curve.seconds[-1] / len(curve.seconds)] for curve in curves])


class _Forest:
    """Extremely randomised trees whose prediction for one row takes a fraction of a millisecond.

    scikit-learn grows the trees; its own prediction takes about 20 ms a row, most of it threads.
    """

    def __init__(self, features: Array, targets: Array) -> None:
        targets = targets if targets.shape[1] > 1 else targets[:, 0]
        forest = ExtraTreesRegressor(TREES, min_samples_leaf=2, random_state=0).fit(features, targets)
        trees = [estimator.tree_ for estimator in forest.estimators_]
        starts = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
        self._roots, self._depth = starts, max(tree.max_depth for tree in trees)
        self._values = np.concatenate([tree.value[:, :, 0] for tree in trees])
        self._thresholds = np.concatenate([tree.threshold for tree in trees])
        self._features = np.concatenate([np.maximum(tree.feature, 0) for tree in trees])
        # A leaf is its own child, so that a walk of the largest depth ends in the leaf of every tree.
        self._children = np.concatenate(
            [
                np.where(children < 0, np.arange(tree.node_count), children) + start
                for tree, start in zip(trees, starts, strict=True)
                for children in [np.stack([tree.children_left, tree.children_right])]
            ],
            axis=1,
        )

    def predict(self, row: Array) -> Array:
        """The mean over the trees of their leaves' values."""
        nodes = self._roots
        for _ in range(self._depth):
            goes_right = (row[self._features[nodes]].astype(np.float32) > self._thresholds[nodes]).astype(int)
            nodes = self._children[goes_right, nodes]
        return self._values[nodes].mean(axis=0)


class _SeedNoise:
    """Whole curves of differences between two seeds of one configuration.

    A configuration gets that of a recorded pair with its optimiser and a similar final cost. The difference
    of a pair has twice the variance of one seed. It is added with a random sign, unless one of the two
    trainings failed: half of the draws of such a pair have its failure, the others no noise.
    """

    def __init__(self, table: CurveTable, reports: int) -> None:
        first = {digest(curve.parameters): curve for curve in table.curves if curve.seed == 0}
        pairs = [(first[digest(curve.parameters)], curve) for curve in table.curves if curve.seed != 0]
        pairs = [pair for pair in pairs if all(_is_complete(curve, reports) for curve in pair)]
        self._optimisers = [_find_optimiser(a.parameters) for a, _ in pairs]
        self._finals = [(a.final_cost + b.final_cost) / 2 for a, b in pairs]
        self._differences = np.array([np.subtract(a.costs, b.costs) for a, b in pairs]).reshape(-1, reports)
        finals = np.abs(self._differences[:, -1])
        self._is_failure = finals > OUTLIER_SCALE * 1.4826 * (np.median(finals) if pairs else 0.0) + 1e-9
        usual = self._differences[~self._is_failure, -1]
        self.deviation = float(np.sqrt(np.mean(usual**2) / 2)) if len(usual) else 0.0

    def draw(self, parameters: Mapping[str, Scalar], final_cost: float, seed: int) -> Array:
        """The noise of one training whose mean final cost is `final_cost`."""
        chooser = random.Random(digest(dict(sorted(parameters.items())), seed))
        similar = self._find_similar(_find_optimiser(parameters), final_cost)
        if not similar:
            return np.zeros(self._differences.shape[1])
        place, sign = chooser.choice(similar), chooser.choice([-1.0, 1.0])
        difference = self._differences[place]
        if not self._is_failure[place]:
            # Unstable trainings spike upwards between reports; the mirror image of a spike would be a record.
            return np.maximum(sign * difference / math.sqrt(2), -MAX_GAIN_DEVIATIONS * self.deviation)
        worse = np.maximum(difference * np.sign(difference[-1]), 0.0)
        return worse if sign > 0 else np.zeros_like(worse)

    def _find_similar(self, optimiser: Scalar, final_cost: float) -> list[int]:
        places = [place for place, kind in enumerate(self._optimisers) if kind == optimiser]
        return sorted(places, key=lambda place: abs(self._finals[place] - final_cost))[:SIMILAR_PAIRS]


def _is_complete(curve: Curve, reports: int) -> bool:
    return len(curve.costs) == reports and math.isfinite(curve.final_cost)


def _find_optimiser(parameters: Mapping[str, Scalar]) -> Scalar:
    return next((value for name, value in parameters.items() if name.endswith(".optimiser.kind")), None)
