import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtune.errors import ConfigurationError
from memtune.search import HalvingConfig, Outcome, SuccessiveHalving
from memtune.trial_state import TrialState
from memtune.values import parse

BUDGET = 10_000
VALUES = st.floats(1.0, 100.0) | st.just(math.nan) | st.just(math.inf)
REPORTS = st.lists(st.tuples(st.integers(0, 8), st.integers(1, BUDGET), VALUES), max_size=60)


def rule(grace: int = 100, factor: int = 3, budget: int = BUDGET) -> SuccessiveHalving:
    return SuccessiveHalving(HalvingConfig(grace=grace, factor=factor), budget)


def outcome(number: int, curve: dict[int, float], state: TrialState = TrialState.COMPLETE) -> Outcome:
    return Outcome(number, f"trial {number}", {}, state, curve=curve)


def monotonic(reports: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """The reports of trials that see more tokens each time."""
    seen: dict[int, int] = {}
    kept = []
    for number, tokens, value in reports:
        if tokens > seen.get(number, 0):
            seen[number] = tokens
            kept.append((number, tokens, value))
    return kept


def curves(reports: list[tuple[int, int, float]]) -> dict[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {}
    for number, tokens, value in reports:
        found.setdefault(number, {})[tokens] = value
    return found


def test_rungs_grow_by_the_factor_and_end_below_the_budget():
    assert rule(grace=100, factor=3, budget=2700).rungs == (100, 300, 900)
    assert rule(grace=100, factor=3, budget=2701).rungs == (100, 300, 900, 2700)


def test_a_budget_within_the_grace_stops_nothing():
    short = rule(grace=100, budget=100)
    assert short.rungs == ()
    assert all(short.decide(number, 99, float(number)) for number in range(20))


def test_one_of_three_passes_a_rung():
    halving = rule()
    decisions = [halving.decide(number, 100, value) for number, value in enumerate([3.0, 2.0, 2.5, 1.0, 1.5])]
    assert decisions == [True, True, False, True, False]


def test_the_sixth_trial_passes_as_second_best():
    halving = rule()
    for number, value in enumerate([1.0, 3.0, 4.0, 5.0, 6.0]):
        halving.decide(number, 100, value)
    assert halving.decide(5, 100, 2.0)


def test_no_trial_is_stopped_before_the_first_rung():
    halving = rule()
    assert all(halving.decide(number, 99, float(number)) for number in range(20))
    assert halving.get_values(100) == {}


@given(values=st.lists(VALUES, max_size=20))
def test_a_lone_trial_is_never_stopped(values):
    halving = rule()
    assert all(halving.decide(0, 100 * (index + 1), value) for index, value in enumerate(values))


@given(REPORTS)
def test_the_best_trial_at_every_rung_it_reaches_continues(reports):
    halving = rule()
    stopped = set()
    for number, tokens, value in monotonic(reports):
        before = {rung: halving.get_values(rung) for rung in halving.rungs}
        goes_on = halving.decide(number, tokens, value)
        new = [rung for rung in halving.rungs if rung <= tokens and number not in before[rung]]
        best = all(value <= min(before[rung].values(), default=math.inf) for rung in new)
        assert goes_on or number in stopped or not best
        if not goes_on:
            stopped.add(number)


@given(REPORTS)
def test_replayed_curves_give_the_rungs_of_the_live_run(reports):
    live, replayed = rule(), rule()
    reports = monotonic(reports)
    for report in reports:
        live.decide(*report)
    replayed.replay([outcome(number, curve) for number, curve in curves(reports).items()])
    assert [live.get_values(rung) for rung in live.rungs] == [
        replayed.get_values(rung) for rung in live.rungs
    ]


@given(REPORTS, st.tuples(st.integers(20, 30), st.integers(1, BUDGET), VALUES))
def test_decisions_after_a_replay_equal_those_of_the_live_run(reports, following):
    live, replayed = rule(), rule()
    reports = monotonic(reports)
    for report in reports:
        live.decide(*report)
    replayed.replay([outcome(number, curve) for number, curve in curves(reports).items()])
    assert live.decide(*following) == replayed.decide(*following)


@given(REPORTS)
def test_a_repeated_report_changes_nothing(reports):
    halving = rule()
    for report in monotonic(reports):
        decision = halving.decide(*report)
        values = [halving.get_values(rung) for rung in halving.rungs]
        assert halving.decide(*report) == decision
        assert [halving.get_values(rung) for rung in halving.rungs] == values


@given(st.permutations([(number, 100, float(number)) for number in range(8)]))
def test_the_values_of_a_rung_do_not_depend_on_order(reports):
    halving = rule()
    for report in reports:
        halving.decide(*report)
    assert halving.get_values(100) == {number: float(number) for number in range(8)}


def test_order_decides_who_passes():
    """The third-best passes as the first to come and is stopped as the last."""
    early, late = rule(), rule()
    assert early.decide(0, 100, 3.0)
    late.decide(1, 100, 1.0)
    late.decide(2, 100, 2.0)
    assert not late.decide(0, 100, 3.0)


def test_a_report_past_several_rungs_is_its_trials_value_at_each():
    halving = rule()
    halving.decide(0, 950, 5.0)
    assert [halving.get_values(rung) for rung in (100, 300, 900)] == [{0: 5.0}] * 3
    assert halving.get_values(2700) == {}


def test_a_trials_value_at_a_rung_is_its_first_report_past_it():
    halving = rule()
    halving.decide(0, 120, 5.0)
    halving.decide(0, 250, 4.0)
    assert halving.get_values(100) == {0: 5.0}


def test_a_report_past_several_rungs_must_be_good_enough_at_each():
    halving = rule()
    for number in range(3):
        halving.decide(number, 100, 1.0)
    assert not halving.decide(3, 300, 2.0)


def test_a_diverged_trial_is_the_worst():
    halving = rule()
    halving.decide(0, 100, 9.0)
    halving.decide(1, 100, 8.0)
    assert not halving.decide(2, 100, math.nan)


def test_a_diverged_trial_stops_no_other():
    halving = rule()
    halving.decide(0, 100, math.nan)
    halving.decide(1, 100, 8.0)
    assert halving.decide(2, 100, 7.0)


def test_a_stopped_trial_stays_stopped_after_a_replay():
    halving = rule()
    halving.replay([outcome(0, {100: 1.0}, TrialState.STOPPED)])
    assert not halving.decide(0, 300, 0.5)


@pytest.mark.parametrize("wrong", [{"grace": 0}, {"grace": 10, "factor": 1}])
def test_settings_without_an_effect_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        parse(HalvingConfig, wrong, "study.toml")
