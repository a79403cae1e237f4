"""The figures of a trial, whatever there is of it to draw."""

import pytest

from memtune.tracking import figures
from memtune.tracking.figures import Points, learning_curve

PNG = b"\x89PNG"


@pytest.mark.parametrize("points", [[], [(10, 1.8e308)]], ids=["no report", "diverged"])
def test_a_trial_of_which_no_point_can_be_drawn_has_an_empty_page(points: Points) -> None:
    figures._page.cache_clear()
    assert learning_curve("trial", "perplexity", points, points).startswith(PNG)
