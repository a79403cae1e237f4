"""Figures have the units of the tables, and are drawn without validated trials too."""

from pathlib import Path

import numpy as np
import pytest

from memtune.estimate import Estimate
from memtune.reports.study_figures import draw_leaderboard, write_leaderboard_png
from memtune.tracking import LeaderboardRow
from memtune.trial_state import StopReason, TrialEnd, TrialState


def make_row(figure: float, family: str = "lstmn", parameters: int = 70_000) -> LeaderboardRow:
    return LeaderboardRow(
        name=f"{family} #0",
        family=family,
        study="s",
        trial="t",
        run_id="r",
        state=TrialState.COMPLETE,
        end=TrialEnd(reason=StopReason.BUDGET),
        protocol="sentence, inference",
        corpus_digest="d",
        parameters={"model.family": "lstmn"},
        parameter_count=parameters,
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


def test_families_of_equal_size_are_strips_and_others_are_not() -> None:
    equal = [make_row(0.61), make_row(0.95, "lstm", 71_000)]
    (axes,) = draw_leaderboard(equal, "pairs", None).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lstm", "lstmn"]
    unequal = [make_row(0.61), make_row(0.95, "lstm", 140_000)]
    (axes,) = draw_leaderboard(unequal, "pairs", None).axes
    assert axes.get_xlabel() == "parameters"


def test_a_trial_without_a_rank_is_hollow_and_the_best_configuration_has_a_ring() -> None:
    best = make_row(0.95).model_copy(update={"place": 1, "estimate": Estimate(cost=0.05)})
    (axes,) = draw_leaderboard([best, make_row(0.61, "rnn", 140_000)], "pairs", None).axes
    ranked, ring, hollow = axes.lines
    assert ranked.get_markerfacecolor() == ranked.get_color()
    assert (ring.get_markerfacecolor(), hollow.get_markerfacecolor()) == ("none", "none")
    assert np.asarray(ring.get_ydata()).tolist() == [pytest.approx(0.95)]
