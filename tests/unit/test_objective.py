"""Figures that readers know, and the costs behind them."""

import math

import pytest

from memtune.objective import better, figure, shown


def test_a_perplexity_is_the_exponential_of_its_cost_and_overflows_to_infinity():
    assert figure("perplexity", 2.0) == pytest.approx(math.exp(2.0))
    assert figure("perplexity", 1e4) == math.inf


def test_an_accuracy_is_what_is_not_wrong():
    assert figure("accuracy", 0.25) == 0.75
    assert shown("accuracy", 0.4596, 2) == "54.04 %"


def test_less_cost_is_a_better_figure():
    for objective in ("perplexity", "accuracy"):
        low, high = figure(objective, 0.1), figure(objective, 0.2)
        assert (low < high) == (better(objective) == "lower")
