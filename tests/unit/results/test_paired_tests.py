"""Intervals have their nominal coverage, and tests their nominal level without a difference."""

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from memtune.errors import CorpusError
from memtune.objective import Objective
from memtune.results.study.alternative_comparison import compare_items
from memtune.seed_statistics import (
    LOOKS,
    MAX_SEEDS,
    Estimate,
    PairedTest,
    Results,
    compare_results,
    correct_for_choice,
    correct_holm,
    estimate_cost,
)
from memtune.tasks import ItemCosts
from tests.presence import require

DRAWS = 2000
FEW_DRAWS = 800
"""Of slow tests, whose broken corrections are far outside the same bounds."""
LEVEL_NOISE = 0.0125
"""2.5 standard errors of a share of 5 % in 2,000 draws."""
ITEMS, RESAMPLES = 150, 400

Noise = Callable[[np.random.Generator, int], NDArray[np.float64]]


def make_items(costs: NDArray[np.float64], counts: NDArray[np.int64]) -> ItemCosts:
    return ItemCosts("sentences", costs, counts)


def draw_pair(random: np.random.Generator, difference: float) -> tuple[ItemCosts, ItemCosts]:
    """Two models' nats of sentences of 2 to 40 words: hard sentences are hard for both models."""
    counts = random.integers(2, 41, ITEMS)
    shared = random.gamma(4.0, 1.2, ITEMS)
    first, second = (
        counts * (shared + random.normal(0.0, 0.5, ITEMS) / np.sqrt(counts) + change)
        for change in (difference, 0.0)
    )
    return make_items(first, counts), make_items(second, counts)


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_of_a_mean_covers_the_truth_in_95_percent_of_2000_draws(seeds: int) -> None:
    random = np.random.default_rng(seeds)
    found = [estimate_cost(list(random.normal(4.6, 0.017, seeds))) for _ in range(DRAWS)]
    covered = [one.low <= 4.6 <= one.high for one in found if one.low is not None and one.high is not None]
    assert len(covered) == DRAWS
    assert 0.93 <= float(np.mean(covered)) <= 0.97


def test_two_seeds_have_a_mean_without_an_interval() -> None:
    estimate = estimate_cost([4.5, 4.7])
    assert estimate == Estimate(cost=4.6, seeds=2)
    assert estimate.describe("perplexity", 1) == "99.5 (mean of 2 seeds)"


def draw_accuracy_costs(random: np.random.Generator, count: int, deviation: float) -> list[float]:
    """Seeds under which 150 or 151 of 200 answers are right, each as often, or a few more or fewer."""
    return [float(round(wrong)) / 200 for wrong in random.normal(49.5, deviation, count)]


@pytest.mark.parametrize("deviation", [0.05, 0.5, 1.0])
def test_the_interval_of_coarse_accuracies_covers_the_truth_or_is_missing(deviation: float) -> None:
    """Seeds with the same accuracy have none: one of width zero would cover in three of four draws."""
    random = np.random.default_rng(7)
    found = [estimate_cost(draw_accuracy_costs(random, 3, deviation)) for _ in range(FEW_DRAWS)]
    covered = [one.low <= 49.5 / 200 <= one.high for one in found if one.low is not None and one.high]
    assert 0 < len(covered) < FEW_DRAWS
    assert float(np.mean(covered)) >= 0.94
    assert estimate_cost([0.15] * 3).describe("accuracy", 1) == "85.0 % (mean of 3 seeds)"
    assert estimate_cost([0.1 + 0.2, 0.3, 0.3]).low is None  # equal but for rounding


@pytest.mark.parametrize("is_counted", [False, True])
def test_equal_models_with_coarse_accuracies_are_rarely_told_apart_by_few_seeds(is_counted: bool) -> None:
    """Without a deviation, three seeds each would tell apart 3 % of them, and 25 % from one that counts."""
    random = np.random.default_rng(8)
    wrong = 0
    for _ in range(FEW_DRAWS):
        first, second = (dict(enumerate(draw_accuracy_costs(random, 5, 0.05))) for _ in range(2))
        other = 49.5 / 200 if is_counted else second
        looks = ({seed: first[seed] for seed in range(count)} for count in (3, 4, 5))
        wrong += any(require(compare_results(own, other)).is_significant for own in looks)
    assert wrong / FEW_DRAWS <= 0.01


def test_seeds_with_the_same_accuracy_tell_two_models_apart_from_five_on() -> None:
    for seeds, counted, is_significant in (
        (4, False, False),
        (5, False, True),
        (5, True, False),
        (8, True, True),
    ):
        other: Results = 0.5 if counted else dict.fromkeys(range(seeds), 0.5)
        found = require(compare_results(dict.fromkeys(range(seeds), 0.0), other))
        assert found.is_significant == is_significant


def test_the_interval_over_items_covers_the_truth_in_95_percent_of_800_draws() -> None:
    random = np.random.default_rng(1)
    found = [require(compare_items(*draw_pair(random, -0.03), RESAMPLES)) for _ in range(FEW_DRAWS)]
    assert 0.93 <= float(np.mean([one.low <= -0.03 <= one.high for one in found])) <= 0.97


def test_the_test_over_items_has_its_nominal_level_without_a_difference() -> None:
    random = np.random.default_rng(2)
    rejected = [
        require(compare_items(*draw_pair(random, 0.0), RESAMPLES)).is_significant for _ in range(FEW_DRAWS)
    ]
    assert float(np.mean(rejected)) <= 0.05 + LEVEL_NOISE


@pytest.mark.parametrize("items", [6, 10, 20])
def test_the_test_over_items_keeps_its_level_for_few_of_them(items: int) -> None:
    random = np.random.default_rng(items)
    counts = np.ones(items, dtype=np.int64)
    rejected = [
        require(
            compare_items(
                make_items(random.normal(2.0, 1.0, items), counts),
                make_items(random.normal(2.0, 1.0, items), counts),
                RESAMPLES,
            )
        ).is_significant
        for _ in range(DRAWS)
    ]
    assert float(np.mean(rejected)) <= 0.05 + LEVEL_NOISE


def test_five_items_are_too_few_to_tell() -> None:
    counts = np.ones(5, dtype=np.int64)
    assert compare_items(make_items(np.zeros(5), counts), make_items(np.ones(5), counts)) is None


def stops_with_a_difference(costs: NDArray[np.float64], seeds: int) -> bool:
    """Whether a study that looks after every seed of both calls a difference within so many."""
    first, second = costs
    return any(
        require(compare_results(dict(enumerate(first[:look])), dict(enumerate(second[:look])))).is_significant
        for look in LOOKS
        if look <= seeds
    )


@pytest.mark.parametrize(("deviation", "draws"), [(1.0, FEW_DRAWS), (4.0, FEW_DRAWS), (0.0, DRAWS)])
def test_looking_after_every_seed_keeps_the_level_whatever_the_deviations(
    deviation: float, draws: int
) -> None:
    """A study that stops at the first significant difference, of up to 30 seeds, is wrong in 5 % of cases.

    A deviation of 0 is that of a model that counts.
    """
    random = np.random.default_rng(5)
    costs = random.normal(0.0, 1.0, (draws, 2, MAX_SEEDS)) * np.array([[1.0], [deviation]])
    wrong = [stops_with_a_difference(each, MAX_SEEDS) for each in costs]
    assert 0.03 <= float(np.mean(wrong)) <= 0.05 + LEVEL_NOISE


@pytest.mark.parametrize(("difference", "seeds"), [(2, 12), (1, 30)])
def test_a_difference_is_found_in_nine_of_ten_studies(difference: int, seeds: int) -> None:
    """In standard deviations of a seed."""
    costs = np.random.default_rng(difference).normal(0.0, 1.0, (FEW_DRAWS, 2, MAX_SEEDS))
    costs[:, 1] += difference
    assert float(np.mean([stops_with_a_difference(each, seeds) for each in costs])) >= 0.9


def test_a_seed_after_a_look_waits_for_the_next_look() -> None:
    second = {seed: 4.0 + seed / 10 for seed in range(MAX_SEEDS - 1)}
    first = {seed: cost - 1.0 for seed, cost in second.items()}
    assert require(compare_results(first, second)).pairs == 20


def test_a_best_that_was_chosen_by_its_costs_is_tested_for_all_pairs_in_steps() -> None:
    """Of three alternatives, the smaller p counts for three pairs and the other one for its own."""
    assert correct_for_choice([0.01, 0.2]) == pytest.approx([0.03, 0.2])
    assert correct_for_choice([0.03]) == [0.03]


def test_that_the_best_is_better_than_all_others_needs_no_correction() -> None:
    assert correct_for_choice([0.04, 0.03, 0.001]) == pytest.approx([0.04, 0.04, 0.006])


def test_p_values_of_several_pairs_are_those_of_holm() -> None:
    assert correct_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correct_holm([0.5, 0.9]) == [1.0, 1.0]


def test_the_interval_of_the_best_covers_although_it_was_selected() -> None:
    """Of four equal configurations, the interval of the one with the lowest mean over three seeds."""
    random = np.random.default_rng(6)
    covered = []
    for _ in range(DRAWS):
        estimates = [estimate_cost(list(random.normal(4.6, 0.017, 3)), intervals=4) for _ in range(4)]
        best = min(estimates, key=lambda one: one.cost)
        covered.append(require(best.low) <= 4.6 <= require(best.high))
    assert float(np.mean(covered)) >= 0.94


def test_both_tests_find_a_difference_far_above_the_noise() -> None:
    by_items = require(compare_items(*draw_pair(np.random.default_rng(3), -0.3)))
    by_seeds = compare_results({0: 4.0, 1: 4.01, 2: 4.005}, {0: 4.5, 1: 4.512, 2: 4.504})
    assert by_seeds is not None
    for found in (by_items, by_seeds):
        assert found.is_significant
        assert found.low < found.difference < found.high < 0


def test_the_t_test_of_three_seeds_has_the_values_of_a_table() -> None:
    """Costs of 2, 3, 4 and of 1: t = 2 / (1 / sqrt 3) = 3.4641 with two degrees of freedom, p = 0.0742.

    A look after 3 seeds has the weight 0.005: divided by it, p is beyond the largest of the distribution.
    """
    found = compare_results({0: 2.0, 1: 3.0, 2: 4.0}, {0: 1.0, 1: 1.0, 2: 1.0})
    assert found is not None
    assert (found.difference, found.p) == (pytest.approx(2.0), 1.0)
    # The level of a look after 3 seeds is 0.0001688, whose quantile with two degrees of freedom is 76.97.
    assert found.high - found.difference == pytest.approx(76.97 / math.sqrt(3), rel=1e-3)


def test_deviations_of_the_two_may_differ() -> None:
    """Variances of 1 and 4 over 3: freedom 2 (1 + 4)^2 / (1 + 16) = 2.941, as in Welch (1947)."""
    found = require(compare_results({0: 0.0, 1: 1.0, 2: 2.0}, {0: 7.0, 1: 9.0, 2: 11.0}))
    quantile = float(stdtrit(2 * 25 / 17, 1 - 0.00016875 / 2))
    assert found.difference == pytest.approx(-8.0)
    assert found.high - found.difference == pytest.approx(quantile * math.sqrt(5 / 3), rel=1e-3)


def test_other_alternatives_lend_the_degrees_of_freedom_that_few_seeds_lack() -> None:
    """Variances of 1 with two degrees of freedom, and one of 4 of two other alternatives with four.

    Two sixths of the weight are each variance's own, and four sixths the other one's.
    """
    first, second = {0: 2.0, 1: 3.0, 2: 4.0}, {0: 12.0, 1: 13.0, 2: 14.0}
    others: list[Results] = [{0: 0.0, 1: 2.0, 2: 4.0}, {0: 5.0, 1: 7.0, 2: 9.0}, 7.0]
    found = require(compare_results(first, second, others))
    parts = [(1 / 3, 2), (1 / 3, 2), (2 * 4 * 4 / 6, 4)]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / own for part, own in parts)
    half = float(stdtrit(freedom, 1 - 0.00016875 / 2)) * math.sqrt(total / 3)
    assert found.high - found.difference == pytest.approx(half, rel=1e-3)
    assert "over 3 seeds and the deviations of 2 others" in found.describe(Objective.PERPLEXITY)


def test_seven_seeds_need_no_deviation_of_others() -> None:
    costs = np.random.default_rng(8).normal(size=(3, 8))
    first, second, other = (dict(enumerate(each)) for each in costs)
    assert compare_results(first, second, [other]) == compare_results(first, second)


def test_an_alternative_of_another_size_of_deviation_does_not_hide_a_difference() -> None:
    """Of ten times the deviation; of twice the deviation it counts."""
    first, second = {1: 6.20, 2: 6.19, 3: 6.21, 4: 6.18, 5: 6.20}, {1: 6.5, 2: 6.51, 3: 6.49, 4: 6.52, 5: 6.5}
    noisy = {seed: 6.4 + 10 * (cost - 6.2) for seed, cost in first.items()}
    found = require(compare_results(first, second, [noisy]))
    assert found == compare_results(first, second)
    assert found.is_significant
    near = {seed: 6.4 + 2 * (cost - 6.2) for seed, cost in first.items()}
    assert require(compare_results(first, second, [near])).others == 1
    equal = require(compare_results(dict.fromkeys(first, 6.2), dict.fromkeys(first, 6.201), [noisy]))
    assert (equal.others, equal.is_significant) == (1, False)


def test_seeds_are_paired_by_their_number_and_two_are_too_few() -> None:
    assert compare_results({0: 4.0, 1: 4.1, 7: 4.2}, {0: 4.0, 1: 4.1, 2: 4.2}) is None
    found = compare_results({0: 4.0, 1: 4.1, 2: 4.2, 7: 9.0}, {2: 4.2, 1: 4.1, 0: 4.0})
    assert found is not None
    assert (found.pairs, found.difference, found.p) == (3, 0.0, 1.0)


def test_equal_models_do_not_differ() -> None:
    model, _ = draw_pair(np.random.default_rng(4), 0.0)
    found = require(compare_items(model, model))
    assert (found.difference, found.p) == (0.0, 1.0)


def test_models_with_other_items_are_not_compared() -> None:
    counts = np.array([3, 4])
    first, second = make_items(np.ones(2), counts), make_items(np.ones(2), counts + 1)
    with pytest.raises(CorpusError, match="not the same"):
        compare_items(first, second)


def test_a_difference_is_described_in_the_unit_of_the_figure() -> None:
    found = PairedTest(
        method="sign test of differences",
        pairs=337,
        unit="sentences",
        difference=-0.05,
        low=-0.08,
        high=-0.02,
        p=0.004,
    )
    assert found.describe(Objective.PERPLEXITY) == (
        "perplexity 4.9 % lower (95 % interval 2.0 % to 7.7 %), p = 0.004, "
        "sign test of differences over 337 sentences"
    )
    assert found.describe(Objective.ACCURACY).startswith(
        "accuracy 5.0 points higher (95 % interval 2.0 points to 8.0 points)"
    )
    worse = found.model_copy(update={"difference": 0.02, "low": -0.01, "high": 0.05, "p": 0.0001})
    assert worse.describe(Objective.ACCURACY).startswith(
        "accuracy 2.0 points lower (95 % interval -1.0 points to 5.0 points), p < 0.001"
    )


def test_a_bound_beyond_any_use_is_not_printed_in_full() -> None:
    """Three seeds whose deviations are as large as the difference exclude nothing."""
    found = require(compare_results({0: 3.0, 1: 3.1, 2: 3.2}, {0: 3.1, 1: 3.4, 2: 3.9}))
    assert "(95 % interval excludes nothing)" in found.describe(Objective.PERPLEXITY)
    half = found.model_copy(update={"low": -0.5, "high": 1.0})
    assert half.describe_interval(Objective.PERPLEXITY) == "95 % interval < -100 % to 39.3 %"


def test_a_bound_is_never_below_a_difference_of_more_than_100_per_cent() -> None:
    found = require(compare_results({0: 3.0, 1: 3.1, 2: 3.2}, {0: 3.1, 1: 3.4, 2: 3.9}))
    for high, shown in ((5.0, "> 1000 %"), (2.2, "802.5 %")):
        wide = found.model_copy(update={"difference": 1.954, "low": 0.5, "high": high})
        assert wide.describe(Objective.PERPLEXITY).startswith(
            f"perplexity 605.7 % higher (95 % interval 64.9 % to {shown})"
        )


def test_zero_has_no_minus() -> None:
    found = PairedTest(
        method="sign test of differences",
        pairs=512,
        unit="examples",
        difference=0.0,
        low=0.0,
        high=1e-5,
        p=1.0,
    )
    assert found.describe_interval(Objective.ACCURACY) == "95 % interval 0.0 points to 0.0 points"


def test_an_interval_that_holds_with_others_says_so() -> None:
    """It may hold zero where the test of its own pair finds a difference."""
    first, second = ({seed: base + 0.01 * seed for seed in range(4)} for base in (4.0, 4.2))
    found = require(compare_results(first, second, pairs=3)).describe(Objective.PERPLEXITY)
    assert re.search(r"\(95 % interval \S+ % to \S+ %, all 3 pairs at once\), p ", found)
    assert "at once" not in require(compare_results(first, second)).describe(Objective.PERPLEXITY)


def test_a_mean_is_described_with_its_interval_and_a_single_seed_as_such() -> None:
    assert (
        Estimate(cost=math.log(100)).describe(Objective.PERPLEXITY, 1) == "100.0 (decided by a single seed)"
    )
    counted = Estimate(cost=math.log(100)).describe(Objective.PERPLEXITY, 1, is_counted=True)
    assert counted == "100.0 (the same under every seed)"
    several = Estimate(cost=math.log(100), seeds=3, low=math.log(90), high=math.log(110))
    assert several.describe(Objective.PERPLEXITY, 1) == "100.0 (mean of 3 seeds, 95 % interval 90.0 to 110.0)"
    assert several.compute_interval(Objective.PERPLEXITY) == pytest.approx((90.0, 110.0))
    share = Estimate(cost=0.02, seeds=3, low=-0.01, high=0.05)
    assert (
        share.describe(Objective.ACCURACY, 1) == "98.0 % (mean of 3 seeds, 95 % interval 95.0 % to 100.0 %)"
    )
