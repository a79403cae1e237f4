"""Paired tests of two models or two configurations on the same validation data.

The bootstrap resamples the sentences, questions or examples of the validation split with both models' costs
(Efron and Tibshirani 1993, chapter 13): it says whether two trained models differ on text of this kind, and
knows nothing of other seeds. The t-test takes the differences between trainings under equal seeds: it says
whether two configurations differ.

A model that counts is a function of its text: it has one result under every seed, so the seeds of the other
configuration alone say how much a training varies. Two models that count differ by a fixed amount; a t-test
over their seeds would call any difference significant.
"""

import math
from collections.abc import Mapping
from statistics import stdev
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from memtune.errors import CorpusError
from memtune.estimate import CONFIDENCE_LEVEL, compute_t_interval
from memtune.objective import Objective
from memtune.results.ranking.selection import Configuration, Trial
from memtune.tasks import ItemCosts
from memtune.values import Value

MIN_PAIRED_SEEDS = 3
RESAMPLES = 5000
CHUNK_DRAWS = 2**22
"""Indices drawn at once."""


class PairedTest(Value):
    """The difference between two costs, first minus second: a negative one is in favour of the first."""

    method: Literal["paired bootstrap", "paired t-test"]
    pairs: int
    unit: Literal["sentences", "questions", "examples", "seeds"]
    difference: float
    """Nats per predicted token, or share of wrong answers."""
    low: float
    """The lower bound of the difference's 95 % interval."""
    high: float
    p: float
    """The two-sided p-value of no difference."""

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant at 5 %."""
        return self.p < 1 - CONFIDENCE_LEVEL

    def describe(self, objective: Objective) -> str:
        """The difference in the unit of the figure, with its interval and p.

        >>> test.describe(Objective.PERPLEXITY)
        'perplexity 6.2 % lower (95 % interval 3.1 % to 9.0 %), p = 0.004, paired t-test over 5 seeds'
        """
        gain = objective.compute_gain(self.difference)
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.3f}"
        direction = objective.direction if gain >= 0 else objective.opposite_direction
        return (
            f"{objective} {abs(gain):.1f} {objective.short_margin_unit} {direction} "
            f"({self.describe_interval(objective)}), {p}, {self.method} over {self.pairs:,} {self.unit}"
        )

    def describe_interval(self, objective: Objective) -> str:
        """The interval of the size of the difference, such as `95 % interval 3.1 % to 9.0 %`."""
        bounds = sorted(objective.compute_gain(cost) for cost in (self.low, self.high))
        if objective.compute_gain(self.difference) < 0:
            bounds = [-bounds[1], -bounds[0]]
        low, high = (f"{bound:.1f} {objective.short_margin_unit}" for bound in bounds)
        return f"95 % interval {low} to {high}"


def compare_seeds(first: Mapping[int, float], second: Mapping[int, float]) -> PairedTest | None:
    """The t-test of two configurations by their costs under equal seeds; None for fewer than three seeds."""
    gaps = [first[seed] - second[seed] for seed in first if seed in second]
    if len(gaps) < MIN_PAIRED_SEEDS:
        return None
    center, half = compute_t_interval(gaps)
    deviation = stdev(gaps)
    statistic = math.inf if deviation == 0 else abs(center) / deviation * math.sqrt(len(gaps))
    p = 1.0 if center == 0 else 2 * float(stdtr(len(gaps) - 1, -statistic))
    return PairedTest(
        method="paired t-test",
        pairs=len(gaps),
        unit="seeds",
        difference=center,
        low=center - half,
        high=center + half,
        p=p,
    )


def compare_configurations(first: Configuration[Trial], second: Configuration[Trial]) -> PairedTest | None:
    """The t-test over seeds; None for fewer than three seeds, and where both models count."""
    if first.best.is_counted and second.best.is_counted:
        return None
    return compare_seeds(*_pair_costs(first, second))


def count_equal_seeds(first: Configuration[Trial], second: Configuration[Trial]) -> int:
    """The seeds that both have; a model that counts has those of the other."""
    own, other = _pair_costs(first, second)
    return len(own.keys() & other.keys())


def _pair_costs(
    first: Configuration[Trial], second: Configuration[Trial]
) -> tuple[dict[int, float], dict[int, float]]:
    own, other = first.cost_by_seed, second.cost_by_seed
    if first.best.is_counted:
        own = dict.fromkeys([*own, *other], first.estimate.cost)
    if second.best.is_counted:
        other = dict.fromkeys([*own, *other], second.estimate.cost)
    return own, other


def compare_items(
    first: ItemCosts, second: ItemCosts, resamples: int = RESAMPLES, seed: int = 0
) -> PairedTest:
    """The paired bootstrap of two models by their costs on the same items, a function of its `seed`.

    Raises CorpusError where the items differ.
    """
    if first.unit != second.unit or not np.array_equal(first.counts_I, second.counts_I):
        raise CorpusError(
            f"the models have costs of {len(first.counts_I):,} {first.unit} and {len(second.counts_I):,} "
            f"{second.unit}, which are not the same; evaluate both on one corpus under one protocol"
        )
    gaps_I = first.costs_I - second.costs_I
    differences_R = _resample(gaps_I, first.counts_I, resamples, np.random.default_rng(seed))
    low, high = np.quantile(differences_R, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    # The observed data count as one more resample, so that p is never 0.
    tails = ((differences_R <= 0).sum() + 1, (differences_R >= 0).sum() + 1)
    return PairedTest(
        method="paired bootstrap",
        pairs=len(gaps_I),
        unit=first.unit,
        difference=float(gaps_I.sum() / first.counts_I.sum()),
        low=float(low),
        high=float(high),
        p=min(1.0, 2 * int(min(tails)) / (resamples + 1)),
    )


def _resample(
    gaps_I: NDArray[np.float64], counts_I: NDArray[np.int64], resamples: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """The difference per prediction of each resample, (R,)."""
    items, differences = len(gaps_I), []
    rows = max(1, CHUNK_DRAWS // items)
    for start in range(0, resamples, rows):
        drawn_RI = random.integers(0, items, (min(rows, resamples - start), items), dtype=np.int32)
        differences.append(gaps_I[drawn_RI].sum(1) / counts_I[drawn_RI].sum(1))
    return np.concatenate(differences)
