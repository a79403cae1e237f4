"""The error rates of seeds until decided, by simulation.

    python -m benchmarks.sequential_tests null      # the distribution that corrects p-values for looks
    python -m benchmarks.sequential_tests studies   # false and true decisions, seeds, coverage of intervals

Costs of seeds are normal with a deviation of 1. The alternatives of a study train under the same seeds, whose
costs are independent. Studies are simulated side by side with NumPy; before a table is printed, the ends of
some are compared with those of `memtune.seed_statistics.decide_seeds`.
"""

import argparse
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from memtune.seed_statistics import (
    MAX_SEEDS,
    MIN_PAIRED_SEEDS,
    NULL_QUANTILES,
    SeedCosts,
    decide_seeds,
    estimate_cost,
    find_look_level,
)

STUDIES, CHECKED_STUDIES = 10_000, 30
NULL_STUDIES, NULL_CHUNK = 2_000_000, 50_000
LEVEL = 0.05
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ends:
    """How S studies ended."""

    seeds_S: Ints
    """At the last look."""
    trained_SA: Ints
    """Seeds of each alternative."""
    remaining_SA: Bools
    """The alternatives that may be best."""
    best_S: Ints


def simulate_null(studies: int, seed: int = 0) -> Floats:
    """The smallest p * MAX_SEEDS / n of a t-test over all looks, for each study without a difference."""
    random = np.random.default_rng(seed)
    smallest = []
    for start in range(0, studies, NULL_CHUNK):
        gaps_SN = random.normal(size=(min(NULL_CHUNK, studies - start), MAX_SEEDS))
        means, deviations = _accumulate(gaps_SN)
        lowest = np.full(len(gaps_SN), np.inf)
        for seeds in range(MIN_PAIRED_SEEDS, MAX_SEEDS + 1):
            statistic = np.abs(means[:, seeds - 1]) * np.sqrt(seeds) / deviations[:, seeds - 1]
            lowest = np.minimum(lowest, 2 * stdtr(seeds - 1, -statistic) * MAX_SEEDS / seeds)
        smallest.append(lowest)
    return np.minimum(1.0, np.concatenate(smallest))


def simulate_studies(costs_SAN: Floats, indifference: float) -> Ends:
    """The ends of studies by the costs of their alternatives under N seeds."""
    studies, alternatives, most = costs_SAN.shape
    pairs = list(combinations(range(alternatives), 2))
    accumulated = [_accumulate(costs_SAN[:, first] - costs_SAN[:, second]) for first, second in pairs]
    remaining_SA = np.ones((studies, alternatives), dtype=bool)
    trained_SA = np.zeros((studies, alternatives), dtype=np.int64)
    ended_S, seeds_S = np.zeros(studies, dtype=bool), np.full(studies, most)
    best_S = np.zeros(studies, dtype=np.int64)
    rows, sums_SAN = np.arange(studies), np.cumsum(costs_SAN, axis=2)
    for look in range(MIN_PAIRED_SEEDS, most + 1):
        trained_SA = np.where(remaining_SA & ~ended_S[:, None], look, trained_SA)
        # Pairs have the seeds that both alternatives have.
        level = [np.minimum(trained_SA[:, first], trained_SA[:, second]) for first, second in pairs]
        tests = [
            _test_pair(*found, count, len(pairs)) for found, count in zip(accumulated, level, strict=True)
        ]
        p_SP = _correct_holm(np.stack([p for p, _, _ in tests], axis=1))
        means_SA = np.take_along_axis(sums_SAN, trained_SA[:, :, None] - 1, axis=2)[:, :, 0] / trained_SA
        best = means_SA.argmin(axis=1)
        kept = np.zeros_like(remaining_SA)
        kept[rows, best] = True
        for place, (first, second) in enumerate(pairs):
            is_open = p_SP[:, place] >= LEVEL
            kept[:, second] |= (best == first) & is_open
            kept[:, first] |= (best == second) & is_open
        are_equal = np.ones(studies, dtype=bool)
        for (first, second), (_, low, high) in zip(pairs, tests, strict=True):
            is_within = (low >= -indifference) & (high <= indifference)
            are_equal &= ~(kept[:, first] & kept[:, second]) | is_within
        is_new = ~ended_S
        remaining_SA = np.where(is_new[:, None], kept, remaining_SA)
        best_S = np.where(is_new, best, best_S)
        ends = is_new & ((kept.sum(axis=1) == 1) | are_equal)
        seeds_S = np.where(ends, look, seeds_S)
        ended_S |= ends
    return Ends(seeds_S, trained_SA, remaining_SA, best_S)


def _accumulate(values_SN: Floats) -> tuple[Floats, Floats]:
    """The means and the standard deviations of the first 1 to N values."""
    counts = np.arange(1, values_SN.shape[1] + 1)
    means = np.cumsum(values_SN, axis=1) / counts
    squares = np.cumsum(values_SN**2, axis=1) - counts * means**2
    return means, np.sqrt(np.maximum(squares, 0) / np.maximum(counts - 1, 1))


def _test_pair(means: Floats, deviations: Floats, count_S: Ints, pairs: int) -> tuple[Floats, Floats, Floats]:
    """The p-values corrected for looks, and the intervals of so many pairs."""
    rows = np.arange(len(means))
    center = means[rows, count_S - 1]
    error = deviations[rows, count_S - 1] / np.sqrt(count_S)
    scaled = 2 * stdtr(count_S - 1, -np.abs(center) / error) * MAX_SEEDS / count_S
    smallest, share = np.array(NULL_QUANTILES).T
    inner = np.exp(np.interp(np.log(np.maximum(scaled, smallest[0])), np.log(smallest), np.log(share)))
    p = np.where(scaled < smallest[0], scaled * share[0] / smallest[0], inner)
    half = _find_quantiles(pairs)[count_S] * error
    return p, center - half, center + half


@cache
def _find_quantiles(pairs: int) -> Floats:
    """By the number of seeds, the quantile of the interval that holds for all looks and pairs."""
    levels = [find_look_level(LEVEL / pairs, count) for count in range(2, MAX_SEEDS + 1)]
    known = [float(stdtrit(count - 1, 1 - level / 2)) for count, level in enumerate(levels, start=2)]
    return np.array([np.inf, np.inf, *known])


def _correct_holm(p_SP: Floats) -> Floats:
    order = np.argsort(p_SP, axis=1)
    weights = np.arange(p_SP.shape[1], 0, -1)
    stepped = np.minimum(1.0, weights * np.take_along_axis(p_SP, order, axis=1))
    corrected = np.empty_like(p_SP)
    np.put_along_axis(corrected, order, np.maximum.accumulate(stepped, axis=1), axis=1)
    return corrected


def check_against_decisions(costs_SAN: Floats, ends: Ends, indifference: float) -> None:
    """Raise AssertionError where a study ends otherwise than by `decide_seeds`."""
    for study in range(CHECKED_STUDIES):
        given: dict[str, SeedCosts] = {str(each): {} for each in range(costs_SAN.shape[1])}
        while (found := decide_seeds(given, indifference, costs_SAN.shape[2])).continued:
            for name in found.continued:
                costs = costs_SAN[study, int(name), : found.seeds]
                given[name] = {seed: float(cost) for seed, cost in enumerate(costs)}
        remaining = [str(each) for each in np.flatnonzero(ends.remaining_SA[study])]
        assert (found.seeds, list(found.remaining)) == (ends.seeds_S[study], remaining), study


def report_studies(studies: int) -> None:
    """Print the shares of wrong and right decisions; differences are in deviations of seeds."""
    columns = "alternatives, difference, indifference, wrong, found within 12, found, equal, undecided, seeds"
    print(f"| {columns.replace(', ', ' | ')} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for alternatives in (2, 4, 8):
        for difference, indifference in ((0.0, 0.0), (0.0, 0.5), (1.0, 0.0), (2.0, 0.0)):
            random = np.random.default_rng([alternatives, int(difference)])
            costs = random.normal(size=(studies, alternatives, MAX_SEEDS))
            costs[:, 1:] += difference
            ends = simulate_studies(costs, indifference)
            check_against_decisions(costs, ends, indifference)
            print(_describe(alternatives, difference, indifference, ends), flush=True)


def _describe(alternatives: int, difference: float, indifference: float, ends: Ends) -> str:
    """A study is wrong that excludes an alternative without a difference, or the best one with it."""
    is_single = ends.remaining_SA.sum(axis=1) == 1
    is_wrong = ~ends.remaining_SA.all(axis=1) if difference == 0 else ~ends.remaining_SA[:, 0]
    is_found = is_single & (ends.best_S == 0) & (difference > 0)
    is_equal = ~is_single & (ends.seeds_S < MAX_SEEDS)
    shares = [is_wrong, is_found & (ends.seeds_S <= 12), is_found, is_equal, ~is_single & ~is_equal]
    texts = " | ".join(f"{100 * share.mean():.1f} %" for share in shares)
    return f"| {alternatives} | {difference:g} | {indifference:g} | {texts} | {ends.trained_SA.mean():.1f} |"


def report_coverage(studies: int) -> None:
    """Print the coverage of the interval of the best repeated configuration."""
    print("\n| trials | repeated | new seeds | coverage |\n|---|---|---|---|")
    for trials in (12, 30, 100):
        for best in (3, 5):
            for seeds in (3, 5):
                random = np.random.default_rng([trials, best, seeds])
                share = np.mean([_is_covered(random, trials, best, seeds) for _ in range(studies)])
                print(f"| {trials} | {best} | {seeds} | {100 * share:.1f} % |", flush=True)


def _is_covered(random: np.random.Generator, trials: int, best: int, seeds: int) -> bool:
    """Configurations differ by half of a deviation; the best trials are repeated under new seeds."""
    truth = random.normal(0, 0.5, trials)
    selected = np.argsort(truth + random.normal(size=trials))[:best]
    costs = truth[selected, None] + random.normal(size=(best, seeds))
    winner = int(costs.mean(axis=1).argmin())
    estimate = estimate_cost(costs[winner].tolist(), best)
    assert estimate.low is not None
    assert estimate.high is not None
    return bool(estimate.low <= truth[selected[winner]] <= estimate.high)


def main() -> None:
    """Run the simulation that the command names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("simulation", choices=("null", "studies"))
    parser.add_argument("--studies", type=int, help="default: 2,000,000 for null, 10,000 for studies")
    given = parser.parse_args()
    if given.simulation == "null":
        smallest = np.sort(simulate_null(given.studies or NULL_STUDIES))
        for _, share in NULL_QUANTILES:
            print(f"({np.quantile(smallest, share):.4g}, {share:g}),")
        return
    report_studies(given.studies or STUDIES)
    report_coverage(given.studies or STUDIES)


if __name__ == "__main__":
    main()
