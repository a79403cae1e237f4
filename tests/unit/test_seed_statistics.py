"""Seeds go to the alternatives that may be best, until the best is separated or all that remain are equal."""

from collections.abc import Mapping

import numpy as np

from memtune.seed_statistics import (
    Results,
    SeedCosts,
    SeedDecision,
    choose_compared,
    compare_pair,
    decide_seeds,
)
from tests.presence import require

TRUTH = {"a": 4.0, "b": 4.02, "c": 4.06}
INDIFFERENCE = 0.005


def draw_costs(means: dict[str, float], seeds: int, deviation: float = 0.01) -> dict[str, SeedCosts]:
    random = np.random.default_rng(0)
    return {
        name: {seed: mean + float(random.normal(0, deviation)) for seed in range(1, seeds + 1)}
        for name, mean in means.items()
    }


def test_the_first_round_has_the_seeds_that_a_test_needs() -> None:
    expected = SeedDecision(continued=("a", "b"), seeds=3, remaining=("a", "b"))
    assert decide_seeds({"a": {}, "b": {}}, INDIFFERENCE, 30) == expected


def test_an_alternative_that_is_significantly_worse_leaves_and_the_others_continue() -> None:
    costs = draw_costs({"a": 4.0, "b": 4.003, "bad": 9.0}, 5)
    found = decide_seeds(costs, 1e-6, 30)
    assert (found.continued, found.seeds, found.end) == (("a", "b"), 8, None)


def test_a_separated_best_ends_the_seeds() -> None:
    found = decide_seeds(draw_costs({"a": 4.0, "b": 5.0, "c": 6.0}, 8), INDIFFERENCE, 30)
    assert (found.end, found.remaining, found.continued) == ("separated", ("a",), ())


def test_alternatives_within_the_indifference_end_as_equal() -> None:
    found = decide_seeds(draw_costs({"a": 4.0, "b": 4.0}, 12, 1e-4), INDIFFERENCE, 30)
    assert (found.end, found.remaining) == ("equal", ("a", "b"))
    assert found.seeds < 12


def test_seeds_end_at_their_largest_number() -> None:
    found = decide_seeds(draw_costs({"a": 4.0, "b": 4.0}, 5), 1e-6, 5)
    assert (found.end, found.seeds, found.remaining) == ("max_seeds", 5, ("a", "b"))


def test_a_largest_number_between_two_looks_ends_at_the_first_of_them() -> None:
    found = decide_seeds(draw_costs({"a": 4.0, "b": 4.0}, 7), 1e-6, 7)
    assert (found.end, found.seeds) == ("max_seeds", 5)


def test_a_round_is_completed_before_it_decides() -> None:
    """A driver that was killed within a round continues with the seeds that the round lacks."""
    costs = draw_costs({"a": 4.0, "b": 4.003}, 8)
    costs["b"] = draw_costs({"b": 4.003}, 7)["b"]
    found = decide_seeds(costs, 1e-6, 30)
    assert (found.continued, found.seeds) == (("b",), 8)


def test_later_results_do_not_change_an_earlier_end() -> None:
    costs = draw_costs({"a": 4.0, "b": 5.0}, 30)
    first = decide_seeds(costs, INDIFFERENCE, 30)
    reversed_costs: dict[str, SeedCosts] = {
        name: dict(reversed(found.items())) for name, found in costs.items() if isinstance(found, dict)
    }
    assert decide_seeds(reversed_costs, INDIFFERENCE, 30) == first
    assert first.seeds < 30


def test_a_model_that_counts_takes_part_and_gets_no_seed() -> None:
    costs: dict[str, SeedCosts] = {"lstm": {}, "counts": 4.0, "counts worse": 4.1}
    assert decide_seeds(costs, INDIFFERENCE, 30).continued == ("lstm",)
    costs["lstm"] = {seed: 5.0 + seed / 100 for seed in range(1, 6)}
    found = decide_seeds(costs, INDIFFERENCE, 30)
    assert (found.end, found.remaining) == ("separated", ("counts",))


def test_an_alternative_of_which_most_seeds_fail_leaves() -> None:
    costs = draw_costs({"a": 4.0, "b": 4.5}, 3)
    costs["diverging"] = {1: None, 2: 3.0, 3: None}
    found = decide_seeds(costs, INDIFFERENCE, 30)
    assert "diverging" not in found.remaining
    assert decide_seeds({"a": costs["a"], "d": {1: None, 2: None, 3: None}}, 1.0, 30).end == "unstable"


def test_equal_accuracies_end_the_seeds_as_equal_from_five_on() -> None:
    for seeds, end in ((3, "seeds"), (4, "seeds"), (5, "equal")):
        same: SeedCosts = dict.fromkeys(range(seeds), 0.15)
        assert (decide_seeds({"a": same, "b": same}, 0.001, 30).end or "seeds") == end
    assert decide_seeds({"a": 0.15, "b": 0.15}, 0.001, 30).end == "equal"


def test_an_alternative_that_the_test_finds_better_is_not_excluded_as_worse() -> None:
    """The other has the lowest mean by a lucky seed under which this one failed, which no pair has."""
    lucky: SeedCosts = {1: 3.5, 2: 4.1, 3: 4.101, 4: 4.1}
    better: SeedCosts = {1: None, 2: 4.0, 3: 4.001, 4: 4.0}
    found = decide_seeds({"lucky": lucky, "better": better}, 0.0, 4)
    assert (found.end, found.remaining) == ("max_seeds", ("lucky", "better"))


def test_seeds_go_to_the_next_best_configuration_at_most_twice() -> None:
    lost: dict[str, dict[int, float | None]] = {name: dict.fromkeys(range(3)) for name in "abc"}
    alternatives = {**dict.fromkeys("abcd", "lstm"), "e": "rnn"}
    empty: dict[int, float | None] = {}
    for count, chosen in enumerate(["ae", "be", "ce", "ae"]):
        costs = {name: lost[name] if name in "abc"[:count] else empty for name in alternatives}
        assert [*choose_compared(costs, alternatives)] == [*chosen]


def test_one_large_difference_among_ten_alternatives_needs_few_seeds() -> None:
    """Six standard deviations of a seed; the seeds of a pair alone have too few degrees of freedom."""
    found = decide_seeds(
        draw_costs({f"{number}": 4.0 + 0.06 * (number > 0) for number in range(10)}, 5), 0, 30
    )
    assert (found.end, found.remaining) == ("separated", ("0",))
    assert found.seeds <= 5


def test_an_alternative_that_varies_much_more_lends_no_deviation_and_keeps_no_other_from_it() -> None:
    pair = {"a": {1: 4.0, 2: 4.01, 3: 4.02}, "b": {1: 4.1, 2: 4.11, 3: 4.12}}
    like = {"c": {1: 4.2, 2: 4.21, 3: 4.22}}
    unlike: dict[str, Results] = {"d": {1: 5.0, 2: 9.0, 3: 13.0}}
    found = require(compare_pair({**pair, **like, **unlike}, "a", "b"))
    assert found == compare_pair({**pair, **like}, "a", "b")
    assert found.others == 1


def test_lent_deviations_keep_the_level_where_one_alternative_deviates_more() -> None:
    """At most 5 % of studies of equal alternatives exclude one, within 2.5 standard errors."""
    random, studies = np.random.default_rng(1), 400
    wrong = 0
    for costs in random.normal(4.0, 0.01, (studies, 4, 8)):
        costs[3] = 4.0 + 4 * (costs[3] - 4.0)
        given: dict[str, SeedCosts] = {
            str(number): dict(enumerate(each)) for number, each in enumerate(costs)
        }
        wrong += len(decide_seeds(given, 0, 8).remaining) < 4
    assert wrong / studies <= 0.05 + 2.5 * (0.05 * 0.95 / studies) ** 0.5


def test_one_that_comes_back_at_the_last_look_gets_its_seeds_before_the_end() -> None:
    """It left at an earlier look, and another one is best at the last."""
    generator = np.random.default_rng(2312)
    drawn = {name: list(generator.normal(mean, 0.05, 12)) for name, mean in TRUTH.items()}
    known: dict[str, SeedCosts] = {name: {} for name in drawn}
    while (decision := decide_seeds(known, 1e-6, 8)).continued:
        for name in decision.continued:
            known[name] = dict(enumerate(drawn[name][: decision.seeds]))
    assert (decision.end, decision.seeds, decision.remaining) == ("max_seeds", 8, ("a", "b"))
    returned = known["c"]
    assert isinstance(returned, Mapping)
    assert len(returned) == 8
