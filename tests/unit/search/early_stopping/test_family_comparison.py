import numpy as np
import pytest

from memtune.search.early_stopping import Action, Promotion, PromotionConfig, SuccessiveHalving
from memtune.search.early_stopping import SuccessiveHalvingConfig as Config
from memtune.search.early_stopping.rungs import compute_lower_bound, is_leading


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


def test_a_family_leads_unless_another_is_below_its_interval():
    best = {"rnn": [3.0, 3.01, 3.02], "lstm": [2.0], "scrn": [2.99]}
    assert not is_leading("rnn", best)
    assert is_leading("rnn", {**best, "lstm": [2.98]})
    assert is_leading("lstm", best)
    assert is_leading("new", best)


def is_continued(rule: SuccessiveHalving, number: int, family: str, tokens: int, value: float) -> bool:
    return rule.decide(number, family, tokens, value).action is Action.CONTINUE


def make_rule(**settings: object) -> SuccessiveHalving:
    """One rung, at 100 tokens."""
    return SuccessiveHalving(Config.model_validate({"grace": 100, "factor": 3, **settings}), 300)


@pytest.mark.parametrize(("per_family", "passes"), [(True, True), (False, False)])
def test_the_best_slow_starter_passes_where_families_are_protected(per_family: bool, passes: bool):
    rule = make_rule(per_family=per_family)
    for number in range(6):
        is_continued(rule, number, "lstm", 100, 1.0 + number)
    assert is_continued(rule, 6, "recurrent_memory", 100, 9.0) is passes


def test_two_trials_of_a_family_are_protected():
    """Of eight slow starters the best two and the best third continue, though six others are better."""
    rule = make_rule()
    for number in range(6):
        is_continued(rule, number, "lstm", 100, 1.0 + number)
    for number in range(6, 13):
        is_continued(rule, number, "rnn", 100, 20.0 - number)
    assert is_continued(rule, 13, "rnn", 100, 8.5), "second of eight"
    assert not is_continued(rule, 14, "rnn", 100, 8.7), "third of nine"


def test_a_trial_that_is_good_among_all_passes_behind_two_better_ones_of_its_family():
    rule = make_rule(factor=2)
    for number in range(4):
        is_continued(rule, number, "rnn", 100, 9.0 + number)
    for number in (4, 5):
        is_continued(rule, number, "lstm", 100, 1.0)
    assert is_continued(rule, 6, "lstm", 100, 2.0)


def test_a_family_that_is_worse_at_full_length_is_not_protected():
    rule = make_rule()
    for number, value in enumerate([3.0, 3.01, 3.02]):
        rule.decide(number, "rnn", 300, value)
    for number in (3, 4, 5):
        rule.decide(number, "lstm", 100, 1.0)
    assert is_continued(rule, 6, "rnn", 100, 2.9)
    rule.decide(4, "lstm", 300, 2.0)
    assert not is_continued(rule, 7, "rnn", 100, 2.8)
    assert is_continued(rule, 8, "lstm", 100, 0.9)


def test_each_family_promotes_its_own_best_trial():
    rule = Promotion(PromotionConfig(grace=100, factor=4), 300)
    values = [("lstm", 1.0 + number) for number in range(4)] + [("rnn", 9.0 - number) for number in range(4)]
    decisions = [rule.decide(number, family, 100, value) for number, (family, value) in enumerate(values)]
    assert {decision.action for decision in decisions} == {Action.PAUSE}
    for number in (0, 1):
        assert rule.choose_resumed([], False) == number, "the best two of eight"
        rule.resume(number)
    assert rule.choose_resumed([], False) == 7, "the best of four of its family"
