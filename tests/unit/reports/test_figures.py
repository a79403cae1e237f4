"""Figures: drawn whatever there is to draw."""

from pathlib import Path

from memtune.reports.figures import leaderboard_figure


def test_trials_that_reached_no_validation_are_drawn_without_a_legend(tmp_path: Path) -> None:
    leaderboard_figure([], "small", None, tmp_path / "small.png")
    assert (tmp_path / "small.png").stat().st_size > 0
