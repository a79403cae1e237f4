"""What each alternative has had, and what fewer configurations would have found."""

from itertools import combinations

import pytest

from memtune.objective import Objective
from memtune.results.study.alternative_comparison import expect_best, measure_efforts
from memtune.usage import NodeSeconds, Usage
from tests.unit.results.made_trials import make_study_trial


def test_the_expected_best_of_n_is_the_mean_over_all_choices() -> None:
    costs = [4.0, 3.0, 3.5, 3.0]
    means = [
        sum(map(min, chosen)) / len(chosen)
        for count in range(1, 5)
        for chosen in [list(combinations(costs, count))]
    ]
    assert expect_best(costs) == pytest.approx(means)


def test_the_expected_best_is_known_in_a_study_of_thousands_of_trials() -> None:
    """Of n of the numbers 1 to N, the lowest is (N + 1) / (n + 1) on average."""
    expected = [3001 / (drawn + 1) for drawn in range(1, 3001)]
    assert expect_best([float(number) for number in range(1, 3001)]) == pytest.approx(expected)


def test_repeats_count_in_tokens_and_hours_and_not_as_configurations() -> None:
    hour = Usage(tokens=900, nodes={"": NodeSeconds(cpu=3600)})
    trials = [
        make_study_trial("lstm", 0, {900: 4.0}, usage=hour),
        make_study_trial("lstm", 1, {}, usage=hour),
        make_study_trial("lstm", 0, {900: 4.1}, usage=hour, seed=1, is_repeat=True),
        make_study_trial("rnn", 2, {}),
    ]
    lstm, rnn = measure_efforts(trials, Objective.PERPLEXITY)
    assert (lstm.configurations, lstm.tokens, lstm.cpu_hours) == (2, 2700, 3.0)
    assert lstm.best_of == pytest.approx((54.598,), rel=1e-4)
    assert (rnn.configurations, rnn.best_of) == (1, ())
