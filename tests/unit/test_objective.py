"""Figures (perplexity, accuracy) computed from costs."""

import math

import pytest

from memtune.objective import better_direction, compute_figure, format_figure


def test_a_perplexity_is_the_exponential_of_its_cost_and_overflows_to_infinity():
    assert compute_figure("perplexity", 2.0) == pytest.approx(math.exp(2.0))
    assert compute_figure("perplexity", 1e4) == math.inf


def test_an_accuracy_is_one_minus_its_cost():
    assert compute_figure("accuracy", 0.25) == 0.75
    assert format_figure("accuracy", 0.4596, 2) == "54.04 %"


def test_a_lower_cost_is_a_better_figure():
    for objective in ("perplexity", "accuracy"):
        low, high = compute_figure(objective, 0.1), compute_figure(objective, 0.2)
        assert (low < high) == (better_direction(objective) == "lower")
