"""Figures have the units of the tables, and are drawn without validated trials too."""

from pathlib import Path

from memtune.reports.study_figures import draw_leaderboard, write_leaderboard_png
from memtune.tracking import LeaderboardRow
from memtune.trial_state import StopReason, TrialEnd, TrialState


def make_row(figure: float) -> LeaderboardRow:
    return LeaderboardRow(
        name="lstmn #0",
        family="lstmn",
        study="s",
        trial="t",
        run_id="r",
        state=TrialState.COMPLETE,
        end=TrialEnd(reason=StopReason.BUDGET),
        protocol="sentence, inference",
        corpus_digest="d",
        parameters={"model.family": "lstmn"},
        parameter_count=70_000,
        tokens=1000,
        objective="accuracy",
        figure=figure,
    )


def test_a_figure_without_validated_trials_is_written(tmp_path: Path) -> None:
    write_leaderboard_png([], "small", None, tmp_path / "small.png")
    assert (tmp_path / "small.png").stat().st_size > 0


def test_the_axis_of_accuracies_is_in_per_cent() -> None:
    (axes,) = draw_leaderboard([make_row(0.61), make_row(0.95)], "pairs", None).axes
    assert "80.0%" in [label.get_text() for label in axes.get_yticklabels()]
    assert not any("%" in label.get_text() for label in axes.get_xticklabels())
