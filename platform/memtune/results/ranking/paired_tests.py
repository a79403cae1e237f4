"""Tests of two models or two configurations on the same validation data.

Over items, the signs of the differences are drawn at random: it says whether two trained models differ on
text of this kind, keeps its level for any number of items, and knows nothing of other seeds. Welch's
t-test takes the costs of trainings under equal seeds: it says whether two configurations differ.

A model that counts is a function of its text: it has one result under every seed, so the seeds of the other
configuration alone say how much a training varies. Two models that count differ by a fixed amount; a t-test
over their seeds would call any difference significant.
"""

import math

import numpy as np
from numpy.typing import NDArray

from memtune.errors import CorpusError
from memtune.results.ranking.selection import Configuration, Trial
from memtune.seed_statistics import CONFIDENCE_LEVEL, PairedTest
from memtune.tasks import ItemCosts

MIN_ITEMS = 6
"""The signs of five differences have 32 equally likely values, of which the two extreme ones are 6 %."""
DRAWS = 5000
CHUNK_DRAWS = 2**22
"""Signs drawn at once."""


def compare_items(first: ItemCosts, second: ItemCosts, draws: int = DRAWS) -> PairedTest | None:
    """The test of two models by their costs on the same items, the same for the same costs.

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
    sums_R2 = _draw_signed_sums(np.stack([gaps_I, deviations_I], axis=1), draws)
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


def _draw_signed_sums(values_I2: NDArray[np.float64], draws: int) -> NDArray[np.float64]:
    """The sums of both columns under random signs of the items, (R, 2)."""
    random, items = np.random.default_rng(0), len(values_I2)
    rows = max(1, CHUNK_DRAWS // items)
    return np.concatenate(
        [
            (2.0 * random.integers(0, 2, (min(rows, draws - start), items), dtype=np.int8) - 1.0) @ values_I2
            for start in range(0, draws, rows)
        ]
    )


def count_equal_seeds(first: Configuration[Trial], second: Configuration[Trial]) -> int:
    """The seeds that both have; a model that counts has those of the other."""
    own, other = first.cost_by_seed.keys(), second.cost_by_seed.keys()
    if first.best.is_counted:
        return len(own | other if second.best.is_counted else other)
    return len(own if second.best.is_counted else own & other)
