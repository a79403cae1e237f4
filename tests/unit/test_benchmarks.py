"""The table of a benchmark run, and the phases of a search."""

import pytest

from benchmarks.__main__ import parse_measures
from benchmarks.search_overhead import SearchTimes
from benchmarks.side_by_side import format_measure


@pytest.mark.parametrize(
    ("value", "goal", "must", "at_most", "verdict"),
    [
        (0.93, 0.90, 0.82, False, "goal"),
        (0.85, 0.90, 0.82, False, "must"),
        (0.81, 0.90, 0.82, False, "NOT MET"),
        (154.2, 200, 400, True, "goal"),
        (333.0, 200, 400, True, "must"),
        (412.0, 200, 400, True, "NOT MET"),
        (3.5e-5, 0.01, None, True, "goal"),
        (0.7, 1.0, None, False, "not met"),
    ],
)
def test_the_verdict_of_a_measure_is_parsed_from_its_line(value, goal, must, at_most, verdict):
    printed = format_measure("a: b (c), V=10k", value, goal, must, at_most=at_most, detail="of 3 s (all)")
    (row,) = parse_measures(f"a machine, threads: 1\n{printed}\nno measure: 3\n")
    assert (row.name, row.verdict, row.detail) == ("a: b (c), V=10k", verdict, "of 3 s (all)")
    assert float(row.value) == pytest.approx(value, rel=0.01)


def test_the_phases_of_a_search_and_its_training_add_up_to_its_wall_time():
    times = SearchTimes(50.0, [30.0, 20.0, 10.0], start_seconds=5.0, end_seconds=4.0)
    assert times.list_phases(workers=2) == {"start": 5.0, "trials without training": 11.0, "end": 4.0}
