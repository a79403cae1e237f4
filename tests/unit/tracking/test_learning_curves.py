"""The figures of a trial, whatever there is of it to draw."""

import pytest

from memtune.tracking.runs import learning_curves
from memtune.tracking.runs.learning_curves import Points, draw_learning_curve

PNG = b"\x89PNG"


@pytest.mark.parametrize("points", [[], [(10, 1.8e308)]], ids=["no report", "diverged"])
def test_a_trial_of_which_no_point_can_be_drawn_has_an_empty_page(points: Points) -> None:
    learning_curves._prepare_figure.cache_clear()
    assert draw_learning_curve("trial", "perplexity", points, points).startswith(PNG)
