"""Paired tests of two models or two configurations on the same validation data.

Over items, the signs of the differences are drawn at random: it says whether two trained models differ on
text of this kind, keeps its level for any number of items, and knows nothing of other seeds. The t-test takes
the differences between trainings under equal seeds: it says whether two configurations differ.

Seeds may be added until a difference is decided, so the t-test is corrected for looking after every seed
from the third to the last of MAX_SEEDS: Jennison and Turnbull (2000), "Group Sequential Methods with
Applications to Clinical Trials", chapters 7 and 9. The p-value after n seeds is p * MAX_SEEDS / n of the
t-test, read in the distribution of its smallest value over all looks without a difference
(`benchmarks.sequential_tests` simulates it). Later looks take more of the level than early ones.

A model that counts is a function of its text: it has one result under every seed, so the seeds of the other
configuration alone say how much a training varies. Two models that count differ by a fixed amount; a t-test
over their seeds would call any difference significant.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from memtune.errors import CorpusError
from memtune.estimate import CONFIDENCE_LEVEL
from memtune.objective import Objective
from memtune.results.ranking.selection import Configuration, Trial
from memtune.tasks import ItemCosts
from memtune.values import Value

MIN_PAIRED_SEEDS, MAX_SEEDS = 3, 30
MIN_ITEMS = 6
"""The signs of five differences have 32 equally likely values, of which the two extreme ones are 6 %."""
DRAWS = 5000
CHUNK_DRAWS = 2**22
"""Signs drawn at once."""
NULL_QUANTILES = (
    (1e-5, 6.35e-5),
    (1.55e-5, 1e-4),
    (8.56e-5, 5e-4),
    (1.82e-4, 1e-3),
    (4.83e-4, 2.5e-3),
    (1.034e-3, 5e-3),
    (2.243e-3, 1e-2),
    (4.009e-3, 1.67e-2),
    (6.368e-3, 2.5e-2),
    (1.411e-2, 5e-2),
    (3.210e-2, 0.1),
    (7.523e-2, 0.2),
    (0.12634, 0.3),
    (0.25167, 0.5),
    (1.0, 1.0),
)
"""(smallest p * MAX_SEEDS / n over all looks, share of studies without a difference that have a smaller one):
from 2,000,000 simulated studies with `python -m benchmarks.sequential_tests null`."""


class PairedTest(Value):
    """The difference between two costs, first minus second: a negative one is in favour of the first."""

    method: Literal["sign test of differences", "paired t-test"]
    pairs: int
    unit: Literal["sentences", "questions", "examples", "seeds"]
    difference: float
    """Nats per predicted token, or share of wrong answers."""
    low: float
    """The lower bound of the difference's 95 % interval."""
    high: float
    p: float
    """The two-sided p-value of no difference, after all corrections."""
    correction: str = ""
    """What the p-value is corrected for: repeated looks, and the number of pairs."""

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
            f"{f', corrected for {self.correction}' if self.correction else ''}"
        )

    def describe_interval(self, objective: Objective) -> str:
        """The interval of the size of the difference, such as `95 % interval 3.1 % to 9.0 %`."""
        bounds = sorted(objective.compute_gain(cost) for cost in (self.low, self.high))
        if objective.compute_gain(self.difference) < 0:
            bounds = [-bounds[1], -bounds[0]]
        low, high = (f"{bound:.1f} {objective.short_margin_unit}" for bound in bounds)
        return f"95 % interval {low} to {high}"


def compare_seeds(
    first: Mapping[int, float], second: Mapping[int, float], pairs: int = 1
) -> PairedTest | None:
    """The t-test of two configurations by their costs under equal seeds; None for fewer than three seeds.

    p-value and interval hold for every number of seeds at once, the interval also for `pairs` of them.
    Seeds after the first MAX_SEEDS are not used.
    """
    gaps = [first[seed] - second[seed] for seed in first if seed in second][:MAX_SEEDS]
    count = len(gaps)
    if count < MIN_PAIRED_SEEDS:
        return None
    center, error = fmean(gaps), stdev(gaps) / math.sqrt(count)
    statistic = math.inf if error == 0 else abs(center) / error
    p = 1.0 if center == 0 else correct_for_looks(2 * float(stdtr(count - 1, -statistic)), count)
    level = find_look_level((1 - CONFIDENCE_LEVEL) / pairs, count)
    half = float(stdtrit(count - 1, 1 - level / 2)) * error
    return PairedTest(
        method="paired t-test",
        pairs=count,
        unit="seeds",
        difference=center,
        low=center - half,
        high=center + half,
        p=p,
        correction="repeated looks",
    )


def correct_for_looks(p: float, seeds: int) -> float:
    """The p-value of a t-test after so many seeds, corrected for a look after each of MAX_SEEDS."""
    smallest, share = np.array(NULL_QUANTILES).T
    scaled = p * MAX_SEEDS / seeds
    if scaled < smallest[0]:
        return float(scaled * share[0] / smallest[0])
    return float(np.exp(np.interp(np.log(scaled), np.log(smallest), np.log(share))))


def find_look_level(level: float, seeds: int) -> float:
    """The level of the t-test after so many seeds at which all looks together have the given level."""
    smallest, share = np.array(NULL_QUANTILES).T
    if level < share[0]:
        return float(level * smallest[0] / share[0] * seeds / MAX_SEEDS)
    scaled = np.exp(np.interp(np.log(level), np.log(share), np.log(smallest)))
    return float(scaled * seeds / MAX_SEEDS)


def correct_for_pairs(tests: Sequence[PairedTest]) -> list[PairedTest]:
    """The tests with p-values corrected for their number.

    Holm (1979), "A Simple Sequentially Rejective Multiple Test Procedure".
    """
    if len(tests) < 2:
        return list(tests)
    corrected = correct_holm([test.p for test in tests])
    return [
        test.model_copy(
            update={
                "p": p,
                "correction": " and ".join(filter(None, [test.correction, f"{len(tests)} pairs"])),
            }
        )
        for test, p in zip(tests, corrected, strict=True)
    ]


def correct_holm(values: Iterable[float]) -> list[float]:
    """Holm's p-values, in the order of the given ones."""
    ps = list(values)
    order = sorted(range(len(ps)), key=lambda place: ps[place])
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = highest
    return corrected


def compare_items(
    first: ItemCosts, second: ItemCosts, draws: int = DRAWS, seed: int = 0
) -> PairedTest | None:
    """The test of two models by their costs on the same items, a function of its `seed`.

    Without a difference, each item's difference is as likely with the other sign. The interval is that of the
    wild bootstrap: the same signs on the deviations from the difference. None for fewer than MIN_ITEMS items.
    Raises CorpusError where the items differ.
    """
    if first.unit != second.unit or not np.array_equal(first.counts_I, second.counts_I):
        raise CorpusError(
            f"the models have costs of {len(first.counts_I):,} {first.unit} and {len(second.counts_I):,} "
            f"{second.unit}, which are not the same; evaluate both on one corpus under one protocol"
        )
    gaps_I, items, total = first.costs_I - second.costs_I, len(first.counts_I), int(first.counts_I.sum())
    if items < MIN_ITEMS:
        return None
    difference = float(gaps_I.sum() / total)
    deviations_I = (gaps_I - difference * first.counts_I) * math.sqrt(items / (items - 1))
    sums_R2 = _draw_signed_sums(np.stack([gaps_I, deviations_I], axis=1), draws, seed)
    # The observed data count as one more draw, so that p is never 0; sums within rounding are equal.
    extreme = int((np.abs(sums_R2[:, 0]) >= abs(gaps_I.sum()) * (1 - 1e-9)).sum())
    half = float(np.quantile(np.abs(sums_R2[:, 1]), CONFIDENCE_LEVEL)) / total
    return PairedTest(
        method="sign test of differences",
        pairs=items,
        unit=first.unit,
        difference=difference,
        low=difference - half,
        high=difference + half,
        p=(extreme + 1) / (draws + 1),
    )


def _draw_signed_sums(values_I2: NDArray[np.float64], draws: int, seed: int) -> NDArray[np.float64]:
    """The sums of both columns under random signs of the items, (R, 2)."""
    random, items = np.random.default_rng(seed), len(values_I2)
    rows = max(1, CHUNK_DRAWS // items)
    return np.concatenate(
        [
            (2.0 * random.integers(0, 2, (min(rows, draws - start), items), dtype=np.int8) - 1.0) @ values_I2
            for start in range(0, draws, rows)
        ]
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
