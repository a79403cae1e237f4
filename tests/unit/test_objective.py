"""Figures (perplexity, accuracy) computed from costs."""

import math

import pytest

from memtune.errors import ConfigurationError
from memtune.objective import Objective
from memtune.seed_statistics import Estimate


def test_a_perplexity_is_the_exponential_of_its_cost_and_overflows_to_infinity():
    assert Objective.PERPLEXITY.compute_figure(2.0) == pytest.approx(math.exp(2.0))
    assert Objective.PERPLEXITY.compute_figure(1e4) == math.inf


def test_an_accuracy_is_one_minus_its_cost():
    assert Objective.ACCURACY.compute_figure(0.25) == 0.75
    assert Objective.ACCURACY.format_cost(0.4596, 2) == "54.04 %"


def test_a_lower_cost_is_a_better_figure():
    for objective in Objective:
        low, high = objective.compute_figure(0.1), objective.compute_figure(0.2)
        assert (low < high) == (objective.direction == "lower")
        assert objective.choose_best([high, low]) == low
        assert objective.compute_gain(0.1 - 0.2) > 0 > objective.compute_gain(0.2 - 0.1)


def test_the_gain_of_a_cost_that_is_far_too_high_is_finite():
    assert math.isfinite(Objective.PERPLEXITY.compute_gain(1e6))


def test_a_target_has_the_unit_that_readers_write():
    for objective, target in ((Objective.PERPLEXITY, 90.0), (Objective.ACCURACY, 75.0)):
        cost = objective.compute_target_cost(target)
        assert objective.scale * objective.compute_figure(cost) == pytest.approx(target)


def test_an_unknown_objective_gets_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match='no objective "perplexty"; did you mean "perplexity"'):
        Estimate(cost=1.0).describe("perplexty", 1)
