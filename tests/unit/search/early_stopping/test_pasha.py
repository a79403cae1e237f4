import pytest

from memtune.search.early_stopping import Action, Pasha, PashaConfig
from memtune.search.early_stopping.pasha import estimate_epsilon, is_ranking_stable


def make_curves(*curves: list[float]) -> dict[int, dict[int, float]]:
    return {number: dict(enumerate(curve)) for number, curve in enumerate(curves)}


def test_the_same_order_at_both_rungs_is_stable():
    earlier, later = {0: 3.0, 1: 2.0, 2: 9.0}, {0: 2.5, 1: 1.5}
    assert is_ranking_stable(earlier, later, make_curves([3.0, 2.5], [2.0, 1.5]))


def test_another_order_is_not_stable():
    earlier, later = {0: 3.0, 1: 2.0}, {0: 1.0, 1: 1.5}
    assert not is_ranking_stable(earlier, later, make_curves([3.0, 1.0], [2.0, 1.5]))


def test_another_order_within_the_noise_of_crossing_curves_is_stable():
    curves = make_curves([3.0, 2.0, 3.0, 1.0], [2.0, 3.0, 2.0, 1.5])
    assert estimate_epsilon(curves.values()) == 0.5
    assert is_ranking_stable({0: 2.5, 1: 2.0}, {0: 1.0, 1: 1.5}, curves)
    assert not is_ranking_stable({0: 2.75, 1: 2.0}, {0: 1.0, 1: 1.5}, curves)


def test_epsilon_is_a_high_percentile_of_the_differences_of_curves_that_cross_twice():
    """The first two cross twice and end 0.5 apart; the third crosses neither of them twice."""
    assert estimate_epsilon(make_curves([1, 2, 1, 2.5], [2, 1, 2, 2.0], [9, 9, 9, 0]).values()) == 0.5
    assert estimate_epsilon(make_curves([1, 2], [2, 1]).values()) == 0.0


def test_small_differences_cross_too():
    assert estimate_epsilon(make_curves([1.1, 1.0, 1.1, 1.05], [1.0, 1.1, 1.0, 1.0]).values()) == (
        pytest.approx(0.05)
    )


def run(orders: list[list[float]]) -> int:
    """The tokens up to which trials are promoted, with four trials and values by rung."""
    rule = Pasha(PashaConfig(grace=100, factor=2, max_survivors=4), 1600)
    reached = 0
    for index, values in enumerate(orders):
        for number, value in enumerate(values):
            rule.decide(number, "lstm", 100 * 2**index, value)
            reached = max(reached, 100 * 2**index)
        if rule.choose_resumed([0], is_sampling_over=False) is None:
            break
        while (resumed := rule.choose_resumed([0], is_sampling_over=False)) is not None:
            rule.resume(resumed)
    return reached


def test_trials_are_promoted_to_the_second_rung_while_the_ranking_is_stable():
    assert run([[1.0, 2.0, 3.0, 4.0], [0.5, 0.9, 1.1, 1.3], [0.1, 0.2, 0.3, 0.4]]) == 200


def test_the_highest_rung_rises_with_an_unstable_ranking():
    assert run([[1.0, 2.0, 3.0, 4.0], [0.9, 0.5, 1.1, 1.3], [0.1, 0.2, 0.3, 0.4]]) == 400


def test_the_best_trial_trains_to_the_end_when_nothing_else_is_left():
    rule = Pasha(PashaConfig(grace=100, factor=2), 1600)
    rule.decide(0, "lstm", 100, 1.0)
    for tokens in (100, 200, 400, 800):
        decision = rule.decide(0, "lstm", tokens, 1.0)
        assert decision.action is Action.PAUSE
        assert rule.choose_resumed([], is_sampling_over=True) == 0
        rule.resume(0)
    assert rule.decide(0, "lstm", 1600, 1.0).action is Action.CONTINUE
