"""The leaderboard as CSV."""

import csv
import math
from io import StringIO

import pytest
from rich.table import Table

from memtune.reports.trial_tables import format_latex, format_leaderboard_csv, make_leaderboard_table
from memtune.seed_statistics import Estimate
from tests.unit.reports.test_trial_tables import make_row


def test_every_trial_is_a_line_with_its_figures_and_parameters() -> None:
    rows = [
        make_row(width=8).model_copy(update={"hours": 0.5, "peak_memory_bytes": 1024}),
        make_row(layers=2),
    ]
    read = list(csv.DictReader(StringIO(format_leaderboard_csv(rows, ideal=10.0))))
    assert [(one["model.width"], one["model.layers"]) for one in read] == [("8", ""), ("", "2")]
    first = read[0]
    assert (first["hours"], first["peak_memory_bytes"], first["state"]) == ("0.5", "1024", "complete")
    assert float(first["figure"]) == 12.0
    assert abs(float(first["above_ideal"]) - 0.2) < 1e-9  # 12 of 10


def test_the_row_of_a_configuration_has_its_own_figure_beside_the_mean_that_ranks_it() -> None:
    """A reader who averages the seeds needs the figure of each."""
    mean = Estimate(cost=math.log(20), seeds=3, low=math.log(10), high=math.log(40))
    best = make_row().model_copy(update={"estimate": mean})
    other = make_row().model_copy(update={"place": None, "note": "a seed of lstm #0"})
    read = list(csv.DictReader(StringIO(format_leaderboard_csv([best, other], ideal=None))))
    assert [(one["figure"], one["seeds"], one["low"] != "") for one in read] == [
        ("12.0", "3", True),
        ("12.0", "", False),
    ]
    assert [float(one["ranked_figure"]) for one in read] == pytest.approx([20, 12])


def test_a_table_for_latex_has_the_seeds_and_says_what_its_intervals_are() -> None:
    mean = Estimate(cost=math.log(20), seeds=3, low=math.log(10), high=math.log(40), intervals=2)
    row = make_row().model_copy(update={"estimate": mean})
    lines = format_latex(make_leaderboard_table([row], None, "tiny, 1 trial", is_stacked=False)).splitlines()
    assert lines[:2] == ["% tiny, 1 trial", "% 95 % intervals of 2 configurations, all at once"]
    assert "& 20.000 [10.000, 40.000] & 3 &" in lines[-3]


def test_without_an_ideal_there_is_no_distance_from_it() -> None:
    assert "above_ideal" not in format_leaderboard_csv([make_row()], ideal=None)


def test_a_table_for_latex_escapes_what_means_something_there() -> None:
    table = Table()
    table.add_column("trial")
    table.add_column("%", justify="right")
    table.add_row(r"a_b \ {c}", "7 & 8")
    about, *lines = format_latex(table).splitlines()
    assert about.startswith("% needs booktabs;")
    assert lines == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"trial & \% \\",
        r"\midrule",
        r"a\_b \textbackslash \space \{c\} & 7 \& 8 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
