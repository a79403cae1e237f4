"""Figures: drawn whatever there is to draw, in the units of their tables."""

from pathlib import Path

from memtune.reports.figures import drawn, leaderboard_figure
from memtune.tracking import Row


def row(figure: float) -> Row:
    return Row(
        name="lstmn #0",
        family="lstmn",
        study="s",
        trial="t",
        run_id="r",
        state="finished",
        reason="budget",
        protocol="sentence, inference",
        corpus_digest="d",
        parameters={"model.family": "lstmn"},
        parameter_count=70_000,
        tokens=1000,
        objective="accuracy",
        figure=figure,
    )


def test_trials_that_reached_no_validation_are_drawn_without_a_legend(tmp_path: Path) -> None:
    leaderboard_figure([], "small", None, tmp_path / "small.png")
    assert (tmp_path / "small.png").stat().st_size > 0


def test_accuracies_are_drawn_in_per_cent() -> None:
    (axes,) = drawn([row(0.61), row(0.95)], "pairs", None).axes
    assert "80.0%" in [label.get_text() for label in axes.get_yticklabels()]
    assert not any("%" in label.get_text() for label in axes.get_xticklabels())
