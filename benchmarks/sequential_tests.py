"""The error rates of seeds until decided, by simulation.

    python -m benchmarks.sequential_tests null      # the distribution that corrects p-values for looks
    python -m benchmarks.sequential_tests studies   # false and true decisions, seeds, coverage of intervals
    python -m benchmarks.sequential_tests scaling   # coverage of the intervals of a scaling law

Costs of seeds are normal, independent, and without other mention have a deviation of 1. Studies are simulated
side by side with NumPy; before a row is printed, the ends of some are compared with those of
`memtune.seed_statistics.decide_seeds`.
"""

import argparse
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from memtune.results.study.scaling_laws import Curves, compare_curves
from memtune.seed_statistics import (
    LOOKS,
    MAX_LENT_RATIO,
    MAX_SEEDS,
    NULL_QUANTILES,
    PRIOR_FREEDOM,
    SeedCosts,
    decide_seeds,
    estimate_cost,
    find_look_level,
)

STUDIES, CHECKED_STUDIES = 10_000, 30
NULL_STUDIES, NULL_CHUNK = 1_000_000, 20_000
NULL_DEVIATIONS = (1.0, 1 / 7, 0.0)
SCALING_STUDIES, SCALING_RESAMPLES = 200, 60
REPORT_DEVIATION = 0.001
"""Of the loss of one report from its trial's curve, relative."""
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


def simulate_null(studies: int, deviation: float, seed: int = 0) -> Floats:
    """The smallest p over all looks, divided by its weight, for studies of two equal alternatives.

    The second one has this `deviation`; the first one has 1.
    """
    random = np.random.default_rng(seed)
    smallest = []
    for start in range(0, studies, NULL_CHUNK):
        costs_SAN = random.normal(size=(min(NULL_CHUNK, studies - start), 2, MAX_SEEDS))
        costs_SAN[:, 1] *= deviation
        means, variances = _accumulate(costs_SAN)
        at_looks = [
            _test_pair(means[:, :, look - 1], variances[:, :, look - 1], np.array([look]), (0.0, 0.0))
            for look in LOOKS
        ]
        smallest.append(np.min([scaled for scaled, _ in at_looks], axis=0))
    return np.minimum(1.0, np.concatenate(smallest))


def simulate_studies(costs_SAN: Floats, indifference: float) -> Ends:
    """The ends of studies by the costs of their alternatives under N seeds."""
    studies, alternatives, most = costs_SAN.shape
    remaining_SA = np.ones((studies, alternatives), dtype=bool)
    trained_SA = np.zeros((studies, alternatives), dtype=np.int64)
    ended_S, seeds_S = np.zeros(studies, dtype=bool), np.full(studies, most)
    best_S = np.zeros(studies, dtype=np.int64)
    means_SAN, variances_SAN = _accumulate(costs_SAN)
    for look in LOOKS:
        trained_SA = np.where(remaining_SA & ~ended_S[:, None], look, trained_SA)
        is_new = ~ended_S
        while True:
            best, kept, are_equal = _look(means_SAN, variances_SAN, trained_SA, indifference)
            ends = is_new & ((kept.sum(axis=1) == 1) | are_equal)
            is_over = ends | (is_new & (look == MAX_SEEDS))
            # One that had left comes back where another one is best now.
            lacking_SA = kept & (trained_SA < look) & is_over[:, None]
            if not lacking_SA.any():
                break
            trained_SA = np.where(lacking_SA, look, trained_SA)
        remaining_SA = np.where(is_new[:, None], kept, remaining_SA)
        best_S = np.where(is_new, best, best_S)
        seeds_S = np.where(ends, look, seeds_S)
        ended_S |= ends
    return Ends(seeds_S, trained_SA, remaining_SA, best_S)


def _look(
    means_SAN: Floats, variances_SAN: Floats, trained_SA: Ints, indifference: float
) -> tuple[Ints, Bools, Bools]:
    """The best alternative of each study, those that may be best, and whether all of these are equal."""
    studies, alternatives = trained_SA.shape
    best = np.take_along_axis(means_SAN, trained_SA[:, :, None] - 1, axis=2)[:, :, 0].argmin(axis=1)
    own_SA = np.take_along_axis(variances_SAN, trained_SA[:, :, None] - 1, axis=2)[:, :, 0]
    p_SA = np.ones((studies, alternatives))
    are_within = np.ones((studies, alternatives, alternatives), dtype=bool)
    for first, second in combinations(range(alternatives), 2):
        # Pairs have the seeds that both alternatives have.
        counts = np.minimum(trained_SA[:, first], trained_SA[:, second])
        rows, pair = np.arange(studies)[:, None], [[first, second]]
        means, variances = (each[rows, pair, counts[:, None] - 1] for each in (means_SAN, variances_SAN))
        others = [each for each in range(alternatives) if each not in {first, second}]
        most = MAX_LENT_RATIO * variances.mean(axis=1, keepdims=True)
        freedoms = np.where(own_SA[:, others] <= most, trained_SA[:, others] - 1, 0)
        squares = (freedoms * own_SA[:, others]).sum(axis=1)
        scaled, half = _test_pair(means, variances, counts, (squares, freedoms.sum(axis=1)))
        p = _find_shares(scaled)
        p_SA[:, second] = np.where(best == first, p, p_SA[:, second])
        p_SA[:, first] = np.where(best == second, p, p_SA[:, first])
        are_within[:, first, second] = np.abs(means[:, 0] - means[:, 1]) + half <= indifference
    p_SA[np.arange(studies), best] = -1.0  # no test of the best with itself: first in the order
    kept = _correct_for_choice(p_SA) >= LEVEL
    kept[np.arange(studies), best] = True
    is_pair = kept[:, :, None] & kept[:, None, :]
    are_equal: Bools = np.all(are_within | ~is_pair, axis=(1, 2))
    return best, kept, are_equal


def _accumulate(costs_SAN: Floats) -> tuple[Floats, Floats]:
    """The means and the variances of the first 1 to N costs."""
    counts = np.arange(1, costs_SAN.shape[2] + 1)
    means = np.cumsum(costs_SAN, axis=2) / counts
    squares = np.cumsum(costs_SAN**2, axis=2) - counts * means**2
    return means, np.maximum(squares, 0) / np.maximum(counts - 1, 1)


def _test_pair(
    means_S2: Floats, variances_S2: Floats, counts: Ints, others: tuple[Floats | float, Ints | float]
) -> tuple[Floats, Floats]:
    """p of Welch's t-test divided by the look's weight, and half of the interval over all looks.

    `others` are the sum of squares of the other alternatives that count, and its degrees of freedom.
    """
    own, (squares, pooled) = counts - 1, others
    lent = np.minimum(np.maximum(0, PRIOR_FREEDOM - own), pooled)
    prior = 2 * lent * squares / np.maximum(pooled, 1)
    parts = np.column_stack([own[:, None] * variances_S2, np.broadcast_to(prior, len(variances_S2))])
    parts /= ((own + lent) * counts)[:, None]
    freedoms = np.column_stack([own, own, np.broadcast_to(np.maximum(pooled, 1), own.shape)])
    freedom = parts.sum(axis=1) ** 2 / (parts**2 / freedoms).sum(axis=1)
    error = np.sqrt(parts.sum(axis=1))
    statistic = np.abs(means_S2[:, 0] - means_S2[:, 1]) / error
    looks = np.searchsorted(list(LOOKS), counts)
    levels = np.array([find_look_level(LEVEL, look) for look in LOOKS])[looks]
    half = stdtrit(freedom, 1 - levels / 2) * error
    return 2 * stdtr(freedom, -statistic) / np.array(list(LOOKS.values()))[looks], half


def _find_shares(scaled: Floats) -> Floats:
    smallest, share = np.array(NULL_QUANTILES).T
    inner = np.exp(np.interp(np.log(np.maximum(scaled, smallest[0])), np.log(smallest), np.log(share)))
    return np.where(scaled < smallest[0], scaled * share[0] / smallest[0], inner)


def _correct_for_choice(p_SA: Floats) -> Floats:
    """As `memtune.seed_statistics.correct_for_choice`; the best alternative has p = -1."""
    order = np.argsort(p_SA, axis=1)
    count = p_SA.shape[1]
    pairs = np.array([0, *(comb(count - rank, 2) for rank in range(count - 1))])
    stepped = np.minimum(1.0, pairs * np.take_along_axis(p_SA, order, axis=1))
    corrected = np.empty_like(p_SA)
    np.put_along_axis(corrected, order, np.maximum.accumulate(stepped, axis=1), axis=1)
    return np.minimum(corrected, p_SA.max(axis=1, keepdims=True))


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
    columns = (
        "alternatives, difference, indifference, wrong, found within 5, within 12, found, equal, undecided, "
        "seeds"
    )
    print(f"| {columns.replace(', ', ' | ')} |")
    print(f"|{10 * '---|'}")
    for alternatives in (2, 3, 4, 8):
        for difference, indifference in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (2.0, 0.0), (5.0, 0.0)):
            costs = np.zeros(alternatives)
            costs[1:] = difference
            ends = _simulate(studies, costs, np.ones(alternatives), indifference)
            print(_describe(alternatives, difference, indifference, ends), flush=True)
    print("\n| difference of 2, where a third one has 10 times the deviation | found by 5 seeds |\n|---|---|")
    for difference in (5, 10, 45):
        means = np.array([0.0, difference, 2.0 * difference])
        ends = _simulate(studies, means, np.array([1.0, 1.0, 10.0]), 0.0)
        print(f"| {difference} | {100 * (ends.trained_SA[:, 1] <= 5).mean():.1f} % |", flush=True)
    print("\n| hard cases | wrong |\n|---|---|")
    for name, given, deviations, indifference in HARD_CASES:
        ends = _simulate(studies, np.array(given), np.array(deviations), indifference)
        is_equal = (ends.remaining_SA.sum(axis=1) > 1) & (ends.seeds_S < MAX_SEEDS)
        wrong = is_equal if indifference else ~ends.remaining_SA[:, np.array(given) == 0].all(axis=1)
        print(f"| {name} | {100 * wrong.mean():.1f} % |", flush=True)


HARD_CASES = (
    ("2 equal, one deviation is 3 times the other", [0] * 2, [1, 3], 0),
    ("2 equal, one deviation is 7 times the other", [0] * 2, [1, 7], 0),
    ("4 equal, one of 4 times the deviation", [0] * 4, [1, 1, 1, 4], 0),
    ("8 equal, four of 4 times the deviation", [0] * 8, [1] * 4 + [4] * 4, 0),
    ("8 equal, one of 7 times the deviation", [0] * 8, [1] * 7 + [7], 0),
    (
        "2 of 8 equal, one of these of 2 times the deviation, the others worse by 4",
        [0] * 2 + [4] * 6,
        [2] + [1] * 7,
        0,
    ),
    (
        "2 of 8 equal, one of these of 4 times the deviation, the others worse by 4",
        [0] * 2 + [4] * 6,
        [4] + [1] * 7,
        0,
    ),
    (
        "2 of 8 equal, both of 4 times the deviation, the others worse by 4",
        [0] * 2 + [4] * 6,
        [4] * 2 + [1] * 6,
        0,
    ),
    (
        "2 of 3 equal, one of these of 10 times the deviation, the other worse by 45",
        [0, 0, 45],
        [1, 10, 1],
        0,
    ),
    ("2 of 3 equal, the other worse by 45 and of 10 times the deviation", [0, 0, 45], [1, 1, 10], 0),
    ("2 of 8 equal, the others worse by 2", [0] * 2 + [2] * 6, [1] * 8, 0),
    ("2 of 8 equal, the others worse by 0.5", [0] * 2 + [0.5] * 6, [1] * 8, 0),
    ("8, each worse by 0.25 than the one before", [each / 4 for each in range(8)], [1] * 8, 0),
    ("2 differ by the indifference of 1", [0, 1], [1] * 2, 1),
    ("8, one of which is worse by the indifference of 1", [0] * 7 + [1], [1] * 8, 1),
)
"""(name, costs, deviations, indifference): a study is wrong that excludes one of the best or, with an
indifference, calls equal what is not."""


def _simulate(studies: int, costs_A: Floats, deviations_A: Floats, indifference: float) -> Ends:
    random = np.random.default_rng(len(costs_A))
    noise_SAN = random.normal(size=(studies, len(costs_A), MAX_SEEDS))
    costs_SAN = costs_A[:, None] + deviations_A[:, None] * noise_SAN
    ends = simulate_studies(costs_SAN, indifference)
    check_against_decisions(costs_SAN, ends, indifference)
    return ends


def report_bound(studies: int) -> None:
    """Print what no test exceeds: with known deviations, and one look at the last seed."""
    print("\n| alternatives | difference | seeds | found by the best possible test |\n|---|---|---|---|")
    for alternatives in (2, 4, 8):
        for difference, seeds in ((2.0, 12), (1.0, 30)):
            random = np.random.default_rng([alternatives, seeds])
            means_SA = random.normal(scale=seeds**-0.5, size=(studies, alternatives))
            means_SA[:, 1:] += difference
            lead_S = means_SA[:, 1:].min(axis=1) - means_SA[:, 0]
            found = 100 * (lead_S > -ndtri(LEVEL / 2) * (2 / seeds) ** 0.5).mean()
            print(f"| {alternatives} | {difference:g} | {seeds} | {found:.1f} % |", flush=True)


def _describe(alternatives: int, difference: float, indifference: float, ends: Ends) -> str:
    """A study is wrong that excludes an alternative without a difference, or the best one with it."""
    is_single = ends.remaining_SA.sum(axis=1) == 1
    is_wrong = ~ends.remaining_SA.all(axis=1) if difference == 0 else ~ends.remaining_SA[:, 0]
    is_found = is_single & (ends.best_S == 0) & (difference > 0)
    is_equal = ~is_single & (ends.seeds_S < MAX_SEEDS)
    within = [is_found & (ends.seeds_S <= seeds) for seeds in (5, 12)]
    shares = [is_wrong, *within, is_found, is_equal, ~is_single & ~is_equal]
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


def report_scaling(studies: int) -> None:
    """Print the coverage of the intervals of a scaling law, now and at ten times the compute.

    The losses follow a law of Hoffmann et al. (2022); trials and reports have normal relative deviations.
    """
    print("\n| sizes | reports | deviation of trials | of reports | now | at 10 times |")
    print(f"|{6 * '---|'}")
    for sizes, reports, deviation in ((5, 4, 0.004), (5, 4, 0.01)):
        random = np.random.default_rng([sizes, reports])
        covered_SF = [_cover_law(random, sizes, reports, deviation, seed) for seed in range(studies)]
        shares = " | ".join(f"{100 * share:.1f} %" for share in np.mean(covered_SF, axis=0))
        name = f"{sizes} | {reports} | {100 * deviation:g} %"
        print(f"| {name} | {100 * REPORT_DEVIATION:g} % | {shares} |", flush=True)


def _cover_law(
    random: np.random.Generator, sizes: int, reports: int, deviation: float, seed: int
) -> tuple[bool, bool]:
    """Whether the intervals of a fit hold the losses of the law, at the study's compute and at ten times."""
    trial = np.repeat(np.arange(sizes), reports)
    parameters = np.geomspace(2e4, 6e5, sizes)[trial]
    tokens = np.tile(np.linspace(0.25, 1, reports) * 1.2e6, sizes)
    factors = np.exp(
        random.normal(0, deviation, sizes)[trial] + random.normal(0, REPORT_DEVIATION, len(trial))
    )
    cost = _compute_law(parameters, tokens) * factors
    curves = Curves(trial, parameters, tokens, parameters * tokens, cost)
    found = compare_curves({"lstm": curves}, 10, seed, SCALING_RESAMPLES).families[0]
    sizes_N = np.geomspace(parameters.min(), 10 * parameters.max(), 2000)
    now, later = [
        prediction.low <= _compute_law(sizes_N, prediction.compute / sizes_N).min() <= prediction.high
        for prediction in (found.present, found.larger)
    ]
    return now, later


def _compute_law(parameters: Floats, tokens: Floats) -> Floats:
    return np.asarray(3.0 + 8.0 * parameters**-0.35 + 60.0 * tokens**-0.4)


def main() -> None:
    """Run the simulation that the command names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("simulation", choices=("null", "studies", "scaling"))
    parser.add_argument(
        "--studies", type=int, help="default: 1,000,000 for null, 10,000 for studies, 200 for scaling"
    )
    given = parser.parse_args()
    if given.simulation == "null":
        found = [
            np.sort(simulate_null(given.studies or NULL_STUDIES, deviation)) for deviation in NULL_DEVIATIONS
        ]
        for _, share in NULL_QUANTILES:
            print(f"({min(np.quantile(smallest, share) for smallest in found):.4g}, {share:g}),")
        return
    if given.simulation == "scaling":
        report_scaling(given.studies or SCALING_STUDIES)
        return
    report_bound(100 * (given.studies or STUDIES))
    report_studies(given.studies or STUDIES)
    report_coverage(given.studies or STUDIES)


if __name__ == "__main__":
    main()
