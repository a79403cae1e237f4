"""The leaderboard as CSV."""

import csv
from io import StringIO

from rich.table import Table

from memtune.reports.trial_tables import format_latex, format_leaderboard_csv
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


def test_without_an_ideal_there_is_no_distance_from_it() -> None:
    assert "above_ideal" not in format_leaderboard_csv([make_row()], ideal=None)


def test_a_table_for_latex_escapes_what_means_something_there() -> None:
    table = Table()
    table.add_column("trial")
    table.add_column("%", justify="right")
    table.add_row(r"a_b \ {c}", "7 & 8")
    assert format_latex(table).splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"trial & \% \\",
        r"\midrule",
        r"a\_b \textbackslash \space \{c\} & 7 \& 8 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
