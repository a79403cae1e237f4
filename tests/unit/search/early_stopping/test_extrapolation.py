import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import nnls

from memtune.search.early_stopping import Action, Extrapolation, ExtrapolationConfig
from memtune.search.early_stopping.power_law import bound_final_value, fit_exponent

TRIAL_TOKENS = 1000
REPORTS = range(100, TRIAL_TOKENS + 1, 100)

Curve = Callable[[int], float]


def make_power_law(level: float, drop: float, exponent: float) -> Curve:
    return lambda tokens: level + drop * (tokens / TRIAL_TOKENS) ** -exponent


CURVES: dict[str, Curve] = {
    "slow": make_power_law(4.0, 0.5, 0.3),
    "fast": make_power_law(4.4, 0.1, 1.0),
    "without a level": make_power_law(0.0, 4.5, 0.1),
    "flat": lambda tokens: 4.5,
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("reports", [5, 7, 9])
def test_the_bound_lies_below_the_end_of_a_power_law_and_near_it(name: str, reports: int):
    curve = {tokens: CURVES[name](tokens) for tokens in REPORTS[:reports]}
    bound = bound_final_value(curve, TRIAL_TOKENS)
    assert bound is not None
    assert 0.85 * CURVES[name](TRIAL_TOKENS) < bound <= CURVES[name](TRIAL_TOKENS)


@pytest.mark.parametrize("name", CURVES)
def test_the_fit_of_an_exponent_is_that_of_nonnegative_least_squares(name: str):
    tokens = np.array(REPORTS) / TRIAL_TOKENS
    values = np.array([CURVES[name](each) for each in REPORTS])
    for exponent in (0.05, 0.09, 0.3, 1.0, 4.0):
        powers = tokens**-exponent
        (level, slope), error = nnls(np.stack([np.ones_like(powers), powers], axis=1), values)
        end, squared_error = fit_exponent(tokens, values, exponent)
        assert end == pytest.approx(level + slope, rel=1e-9)
        assert squared_error == pytest.approx(error**2, rel=1e-6, abs=1e-20)


ILL_BEHAVED: dict[str, Curve] = {
    "falls in a step": lambda tokens: 6.0 if tokens < 400 else 5.0,
    "rises": lambda tokens: 5.0 + tokens / 500,
    "diverges": lambda tokens: 5.0 if tokens < 400 else math.inf,
    "is not a number": lambda tokens: 5.0 if tokens < 400 else math.nan,
    "oscillates": lambda tokens: 5.0 + 0.2 * (-1) ** (tokens // 100),
}


@pytest.mark.parametrize("name", ILL_BEHAVED)
def test_a_curve_that_is_no_power_law_has_no_bound(name: str):
    assert (
        bound_final_value({tokens: ILL_BEHAVED[name](tokens) for tokens in REPORTS[:6]}, TRIAL_TOKENS) is None
    )


def test_four_reports_have_no_bound():
    assert bound_final_value(dict.fromkeys(REPORTS[:4], 4.5), TRIAL_TOKENS) is None


def train(rule: Extrapolation, number: int, curve: Curve) -> int:
    """The tokens at which the trial ends."""
    for tokens in REPORTS:
        if rule.decide(number, "lstm", tokens, curve(tokens)).action is Action.STOP:
            return tokens
    return TRIAL_TOKENS


def make_rule(*finished: Curve, **settings: int) -> Extrapolation:
    rule = Extrapolation(ExtrapolationConfig.model_validate({"max_survivors": 1, **settings}), TRIAL_TOKENS)
    for number, curve in enumerate(finished):
        assert train(rule, number, curve) == TRIAL_TOKENS
    return rule


def test_a_trial_that_cannot_reach_the_best_is_stopped_at_the_fifth_report():
    assert train(make_rule(make_power_law(2.0, 0.5, 0.3)), 1, make_power_law(4.0, 0.5, 0.5)) == 500


def test_a_trial_that_falls_towards_a_better_value_continues():
    """It is behind at each of the first nine reports."""
    assert train(make_rule(lambda tokens: 4.45), 1, make_power_law(3.9, 0.5, 0.5)) == TRIAL_TOKENS


@pytest.mark.parametrize("name", ILL_BEHAVED)
def test_a_curve_that_is_no_power_law_is_not_stopped(name: str):
    rule, curve = make_rule(make_power_law(2.0, 0.5, 0.3)), ILL_BEHAVED[name]
    decisions = [rule.decide(1, "lstm", tokens, curve(tokens)) for tokens in REPORTS[:6]]
    assert {decision.action for decision in decisions} == {Action.CONTINUE}


def test_a_trial_continues_while_fewer_others_have_reported_than_may_survive():
    rule = make_rule(make_power_law(2.0, 0.5, 0.3), max_survivors=2)
    assert train(rule, 1, make_power_law(4.0, 0.5, 0.5)) == TRIAL_TOKENS


def test_no_trial_is_stopped_before_the_grace():
    assert train(make_rule(make_power_law(2.0, 0.5, 0.3), grace=800), 1, make_power_law(4.0, 0.5, 0.5)) == 800


def test_the_reason_of_a_stop_names_both_values():
    rule = make_rule(lambda tokens: 2.0)
    decisions = [rule.decide(1, "lstm", tokens, 4.0) for tokens in REPORTS[:5]]
    assert decisions[-1].reason == (
        "extrapolation: its lowest plausible final value 3.96 is above 2, which 1 other trials have reached"
    )
