"""Fronts and hypervolumes of points drawn by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna._hypervolume import compute_hypervolume as compute_with_optuna

from memtune.results.study.study_front import compute_hypervolume, find_front

coordinates = st.integers(0, 12).map(float)


def test_the_front_has_what_no_other_point_dominates() -> None:
    points = [(3.0, 1.0), (2.0, 2.0), (2.5, 2.0), (1.0, 4.0), (3.0, 3.0)]
    assert find_front(points) == [3, 1, 0]


def test_of_equal_points_the_first_is_on_the_front() -> None:
    assert find_front([(1.0, 1.0), (1.0, 1.0)]) == [0]


def test_a_point_that_is_equal_in_one_objective_and_worse_in_another_is_dominated() -> None:
    assert find_front([(1.0, 2.0), (1.0, 3.0), (2.0, 2.0)]) == [0]


def test_the_hypervolume_of_a_front_of_three_is_the_area_of_its_staircase() -> None:
    """From the corner (4, 5): 3 x 1 for (1, 4), 2 x 2 more for (2, 2), 1 x 1 more for (3, 1)."""
    assert compute_hypervolume([(1.0, 4.0), (2.0, 2.0), (3.0, 1.0)], (4.0, 5.0)) == 3 + 4 + 1


def test_the_hypervolume_of_two_boxes_counts_their_overlap_once() -> None:
    """Boxes of 2 x 2 x 1 and 1 x 2 x 2 that share 1 x 2 x 1."""
    assert compute_hypervolume([(0.0, 0.0, 1.0), (1.0, 0.0, 0.0)], (2.0, 2.0, 2.0)) == 4 + 4 - 2


def test_a_point_beyond_the_reference_adds_nothing() -> None:
    assert compute_hypervolume([(1.0, 9.0), (4.0, 1.0)], (4.0, 5.0)) == 0.0
    assert compute_hypervolume([], (4.0, 5.0)) == 0.0


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
@given(data=st.data())
def test_the_hypervolume_is_that_of_optuna(dimensions: int, data: st.DataObject) -> None:
    import numpy as np

    points = data.draw(st.lists(st.tuples(*[coordinates] * dimensions), min_size=1, max_size=8))
    reference = [10.0] * dimensions
    inside = [point for point in points if max(point) < 10.0]
    expected = compute_with_optuna(np.array(inside), np.array(reference)) if inside else 0.0
    assert compute_hypervolume(points, reference) == pytest.approx(expected)
