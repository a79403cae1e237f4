import numpy as np
import pytest

from memtune.search.early_stopping import Action, Promotion, PromotionConfig, SuccessiveHalving
from memtune.search.early_stopping import SuccessiveHalvingConfig as Config
from memtune.search.early_stopping.family_groups import compute_lower_bound, count_leading, list_compared


def test_the_bound_of_a_known_case():
    """0.05^(-1/2) - 1 = 3.4721 times the distance of the best and the third value."""
    assert compute_lower_bound([2.0, 2.05, 2.1]) == pytest.approx(2.0 - 3.472136 * 0.1)


def test_fewer_than_three_values_bound_nothing():
    assert compute_lower_bound([2.0, 2.1]) == -np.inf


def test_the_interval_covers_the_lower_end_in_95_of_100_families():
    """The best values of 30 uniform draws from [1, 2]; 2,000 families."""
    draws = np.sort(np.random.default_rng(0).uniform(1.0, 2.0, (2000, 30)), axis=1)
    covered = np.mean([compute_lower_bound(list(values)) <= 1.0 for values in draws])
    assert 0.93 <= covered <= 0.97


def test_a_family_competes_with_those_whose_best_value_lies_below_its_interval():
    best = {"rnn": [3.0, 3.01, 3.02], "lstm": [2.0], "scrn": [2.99]}
    assert list_compared("rnn", best) == {"rnn", "lstm"}
    assert list_compared("lstm", best) == {"lstm"}
    assert list_compared("new", best) == {"new"}
    assert count_leading(["rnn", "lstm", "scrn"], best) == 2


def is_continued(rule: SuccessiveHalving, number: int, family: str, tokens: int, value: float) -> bool:
    return rule.decide(number, family, tokens, value).action is Action.CONTINUE


def make_rule(**settings: object) -> SuccessiveHalving:
    """One rung, at 100 tokens."""
    return SuccessiveHalving(Config.model_validate({"grace": 100, "factor": 3, **settings}), 300)


@pytest.mark.parametrize(("per_family", "passes"), [(True, True), (False, False)])
def test_the_best_slow_starter_passes_a_rung_of_its_own_family_only(per_family: bool, passes: bool):
    rule = make_rule(per_family=per_family)
    for number in range(6):
        is_continued(rule, number, "lstm", 100, 1.0 + number)
    assert is_continued(rule, 6, "recurrent_memory", 100, 9.0) is passes


def test_a_family_that_is_worse_at_full_length_competes_with_the_better_one():
    rule = make_rule(max_survivors=6)
    for number, value in enumerate([3.0, 3.01, 3.02]):
        rule.decide(number, "rnn", 300, value)
    assert is_continued(rule, 3, "rnn", 100, 2.9)
    rule.decide(4, "lstm", 300, 2.0)
    rule.decide(5, "lstm", 300, 2.1)
    assert not is_continued(rule, 6, "rnn", 100, 2.8)
    assert is_continued(rule, 7, "lstm", 100, 1.9)


def test_families_share_the_cap_of_a_rung():
    """A cap of four is two for each of two families, and at least two for each of more."""
    rule = make_rule(max_survivors=4, factor=9)
    assert [is_continued(rule, number, "lstm", 100, 1.0 + number) for number in range(4)] == [True] * 4
    is_continued(rule, 4, "rnn", 100, 9.0)
    assert not is_continued(rule, 5, "lstm", 100, 2.5)
    assert is_continued(rule, 6, "lstm", 100, 1.5)


def test_each_family_promotes_its_own_best_trial():
    rule = Promotion(PromotionConfig(grace=100, factor=2), 300)
    for number, (family, value) in enumerate([("lstm", 1.0), ("rnn", 5.0), ("rnn", 4.0), ("lstm", 2.0)]):
        rule.decide(number, family, 100, value)
    assert rule.choose_resumed([], False) == 0
    rule.resume(0)
    assert rule.choose_resumed([], False) is None  # trial 2 was the best of its family at its report
    assert rule.decide(2, "rnn", 200, 4.0).action is Action.PAUSE
