import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.errors import ConfigurationError
from memtune.search import StoredTrial
from memtune.search.early_stopping import Action, SuccessiveHalving, SuccessiveHalvingConfig
from memtune.trial_state import TrialState
from memtune.values import parse

TOKENS = 10_000
VALUES = st.floats(1.0, 100.0) | st.just(math.nan) | st.just(math.inf)
REPORTS = st.lists(st.tuples(st.integers(0, 8), st.integers(1, TOKENS), VALUES), max_size=60)


def make_rule(trial_tokens: int = TOKENS, **settings: int) -> SuccessiveHalving:
    return SuccessiveHalving(SuccessiveHalvingConfig(**{"grace": 100, "factor": 3, **settings}), trial_tokens)


def is_continued(rule: SuccessiveHalving, number: int, tokens: int, value: float) -> bool:
    return rule.decide(number, "lstm", tokens, value).action is Action.CONTINUE


def read_rungs(rule: SuccessiveHalving) -> dict[int, dict[int, float]]:
    rungs = [rule.rungs[index] for index in range(len(rule.rungs))]
    return {rung.tokens: dict(rung.values) for rung in rungs}


def keep_growing(reports: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """The reports of trials that see more tokens each time."""
    seen: dict[int, int] = {}
    kept = []
    for number, tokens, value in reports:
        if tokens > seen.get(number, 0):
            seen[number] = tokens
            kept.append((number, tokens, value))
    return kept


def test_rungs_grow_by_the_factor_and_end_below_the_budget():
    assert [*read_rungs(make_rule(2700))] == [100, 300, 900]
    assert [*read_rungs(make_rule(2701))] == [100, 300, 900, 2700]


def test_a_budget_within_the_grace_stops_nothing():
    short = make_rule(100)
    assert len(short.rungs) == 0
    assert all(is_continued(short, number, 99, float(number)) for number in range(20))


def test_one_of_three_passes_a_rung():
    rule = make_rule()
    values = [3.0, 2.0, 2.5, 1.0, 1.5]
    decisions = [is_continued(rule, number, 100, value) for number, value in enumerate(values)]
    assert decisions == [True, True, False, True, False]


def test_the_sixth_trial_passes_as_second_best():
    rule = make_rule()
    for number, value in enumerate([5.0, 4.0, 3.0, 1.0, 6.0]):
        is_continued(rule, number, 100, value)
    assert is_continued(rule, 5, 100, 2.0)


def test_a_trial_passes_only_if_it_is_among_the_best_survivors():
    """Among twelve trials the fourth of twelve is in the best third, and behind a cap of three."""
    for cap, passes in [(4, True), (3, False)]:
        rule = make_rule(max_survivors=cap)
        for number in range(11):
            is_continued(rule, number, 100, float(number))
        assert is_continued(rule, 11, 100, 2.5) is passes


def test_a_cap_of_one_stops_an_early_trial_that_is_not_the_best():
    rule = make_rule(max_survivors=1)
    assert is_continued(rule, 0, 100, 2.0)
    assert not is_continued(rule, 1, 100, 3.0)
    assert is_continued(rule, 2, 100, 1.0)


def test_of_equal_values_the_lower_number_ranks_first():
    later, earlier = make_rule(max_survivors=1), make_rule(max_survivors=1)
    is_continued(later, 0, 100, 2.0)
    assert not is_continued(later, 1, 100, 2.0)
    is_continued(earlier, 1, 100, 2.0)
    assert is_continued(earlier, 0, 100, 2.0)


def test_a_stopped_trial_has_its_rank_in_the_reason():
    rule = make_rule()
    for number in range(5):
        is_continued(rule, number, 300, float(number))
    decision = rule.decide(5, "lstm", 300, 9.0)
    assert decision.reason == "successive halving: rank 6 of 6 at the rung of 100; the best 2 continue"


def test_no_trial_is_stopped_below_the_first_rung():
    rule = make_rule()
    assert all(is_continued(rule, number, 99, float(number)) for number in range(20))
    assert read_rungs(rule)[100] == {}


@given(st.lists(st.floats(1.0, 100.0), max_size=20))
def test_a_trial_alone_is_never_stopped(values):
    rule = make_rule()
    assert all(is_continued(rule, 0, 100 * (index + 1), value) for index, value in enumerate(values))


@given(REPORTS)
def test_the_best_trial_at_every_rung_it_reaches_continues(reports):
    rule = make_rule()
    stopped = set()
    for number, tokens, value in keep_growing(reports):
        before = read_rungs(rule)
        goes_on = is_continued(rule, number, tokens, value)
        new = [rung for rung in before if rung <= tokens and number not in before[rung]]
        best = all(value < min(before[rung].values(), default=math.inf) for rung in new)
        assert goes_on or number in stopped or not best
        if not goes_on:
            stopped.add(number)


@given(st.permutations([(number, 100, float(number)) for number in range(8)]))
def test_the_values_of_a_rung_do_not_depend_on_order(reports):
    rule = make_rule()
    for report in reports:
        is_continued(rule, *report)
    assert read_rungs(rule)[100] == {number: float(number) for number in range(8)}


def test_order_decides_who_passes():
    """The third-best passes as the first to come and is stopped as the last."""
    early, late = make_rule(), make_rule()
    assert is_continued(early, 0, 100, 3.0)
    is_continued(late, 1, 100, 1.0)
    is_continued(late, 2, 100, 2.0)
    assert not is_continued(late, 0, 100, 3.0)


def test_a_report_past_several_rungs_is_its_trials_value_at_each():
    rule = make_rule()
    is_continued(rule, 0, 950, 5.0)
    assert read_rungs(rule) == {100: {0: 5.0}, 300: {0: 5.0}, 900: {0: 5.0}, 2700: {}, 8100: {}}


def test_a_trials_value_at_a_rung_is_its_first_report_past_it():
    rule = make_rule()
    is_continued(rule, 0, 120, 5.0)
    is_continued(rule, 0, 250, 4.0)
    assert read_rungs(rule)[100] == {0: 5.0}


def test_a_report_past_several_rungs_must_be_good_enough_at_each():
    rule = make_rule()
    for number in range(3):
        is_continued(rule, number, 100, 1.0)
    assert not is_continued(rule, 3, 300, 2.0)


def test_a_diverged_trial_is_the_worst():
    rule = make_rule()
    is_continued(rule, 0, 100, 9.0)
    is_continued(rule, 1, 100, 8.0)
    assert not is_continued(rule, 2, 100, math.nan)


def test_a_diverged_trial_stops_no_other():
    rule = make_rule()
    is_continued(rule, 0, 100, math.nan)
    is_continued(rule, 1, 100, 8.0)
    assert is_continued(rule, 2, 100, 7.0)


def test_a_stopped_trial_stays_stopped_after_a_replay():
    rule = make_rule()
    rule.replay([StoredTrial(0, "trial 0", {}, TrialState.STOPPED, curve={100: 1.0})])
    assert not is_continued(rule, 0, 300, 0.5)


@pytest.mark.parametrize("wrong", [{"grace": 0}, {"factor": 1}, {"max_survivors": 0}])
def test_settings_without_an_effect_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        parse(SuccessiveHalvingConfig, {"grace": 10, **wrong}, "study.toml")


def test_without_grace_the_first_rung_is_at_a_quarter_of_a_trial():
    config = SuccessiveHalvingConfig()
    assert config.fill_defaults(100, 2701) == SuccessiveHalvingConfig(grace=676)
    assert config.fill_defaults(900, 2700).grace == 900, "no trial reports earlier"
    assert SuccessiveHalvingConfig(grace=400).fill_defaults(100, 2700).grace == 400
    assert [*read_rungs(config.fill_defaults(100, 2700).make_rule(2700))] == [675, 1350]
