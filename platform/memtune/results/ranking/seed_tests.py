"""The t-test over seeds of two ranked configurations, of which one or both may learn by counting.

A model that counts is a function of its text: it has one result under every seed, so the seeds of the other
configuration alone say how much a training varies. Two models that count differ by a fixed amount; a t-test
over their seeds would call any difference significant.
"""

from memtune.results.ranking.paired_tests import PairedTest, compare_seeds
from memtune.results.ranking.selection import RankedConfiguration

__all__ = ["compare_configurations", "count_equal_seeds"]


def compare_configurations(first: RankedConfiguration, second: RankedConfiguration) -> PairedTest | None:
    """The t-test over seeds; None for fewer than three seeds, and where both models count."""
    if first.best.is_counted and second.best.is_counted:
        return None
    return compare_seeds(*_pair_costs(first, second))


def count_equal_seeds(first: RankedConfiguration, second: RankedConfiguration) -> int:
    """The seeds that both have; a model that counts has those of the other."""
    own, other = _pair_costs(first, second)
    return len(own.keys() & other.keys())


def _pair_costs(
    first: RankedConfiguration, second: RankedConfiguration
) -> tuple[dict[int, float], dict[int, float]]:
    own, other = first.cost_by_seed, second.cost_by_seed
    if first.best.is_counted:
        own = dict.fromkeys([*own, *other], first.estimate.cost)
    if second.best.is_counted:
        other = dict.fromkeys([*own, *other], second.estimate.cost)
    return own, other
