"""The figures that the run of a study shows while it is open."""

import math

import pytest

from memtune.studies.budgets.study_progress import compute_margin_percent


def test_the_margin_of_a_perplexity_is_the_share_by_which_it_is_lower():
    assert compute_margin_percent("perplexity", math.log(100), math.log(125)) == pytest.approx(20)


def test_the_margin_of_an_accuracy_is_in_percentage_points():
    assert compute_margin_percent("accuracy", 0.1, 0.25) == pytest.approx(15)
