"""The charts of a report: seeds, learning curves and trade-offs, and where their axes end."""

import math
import re
from typing import Any

import pytest

from memtune.objective import Objective
from memtune.reports.figure_files import LOG_SCALE
from memtune.reports.report_page.chart_parts import (
    MarkScales,
    StudyChart,
    describe_drawn_limit,
    find_drawn_limit,
    place_amounts,
)
from memtune.reports.report_page.page import describe_page
from memtune.reports.report_page.trial_charts import draw_best_of
from memtune.results.study.alternative_comparison import AlternativeEffort
from memtune.results.study.study_report import StudyReport
from memtune.trial_state import TrialState
from tests.presence import require
from tests.unit.results import made_trials


def test_learning_curves_have_every_seed_and_mark_what_ended_early(
    report: StudyReport, charts: dict[str, StudyChart]
) -> None:
    rows = charts["learning_curves"].tables["reports"]
    trials = report.detail.trials
    assert {row["name"] for row in rows} == {trial.name for trial in trials}
    assert any(trial.is_repeat for trial in trials)
    stopped = {trial.name for trial in trials if trial.state is TrialState.STOPPED}
    assert {row["name"] for row in rows if not row["complete"]} == stopped != set()


def test_a_chart_with_a_front_counts_its_single_seeds(charts: dict[str, StudyChart]) -> None:
    captions = {chart.caption for chart in charts.values() if "Filled marks" in chart.caption}
    assert captions
    assert all("single seeds" in caption for caption in captions)


def test_a_chart_of_hours_is_named_in_the_unit_of_its_axis(charts: dict[str, StudyChart]) -> None:
    for name in ("validation_by_cpu_hours", "best_so_far_by_core_hours"):
        chart = charts[name]
        titles = [
            layer.get("encoding", {}).get("x", {}).get("title") for layer in chart.to_spec(600)["layer"]
        ]
        named = chart.title.lower().partition("against ")[2]
        assert {named, f"{named}{LOG_SCALE}"} & {*titles}


def test_the_best_of_fewer_accuracies_has_whole_numbers_and_no_lowest_validation() -> None:
    effort = AlternativeEffort(
        name="lstm", configurations=2, tokens=0, cpu_hours=0.0, gpu_hours=0.0, best_of=(0.1, 0.2)
    )
    drawn = require(draw_best_of([effort], Objective.ACCURACY, MarkScales(["lstm"])))
    assert drawn.chart.to_dict()["layer"][0]["encoding"]["x"]["axis"]["values"] == [1, 2]
    assert "best validation" in drawn.caption


def test_the_leaderboard_chart_has_a_dot_for_every_seed(
    report: StudyReport, charts: dict[str, StudyChart]
) -> None:
    costs = [cost for entry in report.leaderboard.entries for cost in entry.cost_by_seed.values()]
    drawn = charts["leaderboard"].tables["seeds"]
    assert sorted(row["figure"] for row in drawn) == sorted(map(Objective.PERPLEXITY.compute_figure, costs))
    assert [row["name"] for row in charts["leaderboard"].tables["means"] if row["best"]] == [
        report.detail.best.name if report.detail.best else ""
    ]


def test_the_hours_per_seed_are_the_mean_over_all_trainings_of_a_configuration(report: StudyReport) -> None:
    repeated = [entry for entry in report.leaderboard.entries if entry.is_repeated]
    assert repeated
    for entry in repeated:
        hours = [trial.cpu_hours for trial in report.detail.trials if trial.number == entry.number]
        assert entry.measure("cpu_hours") == pytest.approx(sum(hours) / len(hours))


def make_counted(report: StudyReport) -> StudyReport:
    """The report with a best configuration that counts, with a tenth of its figure."""
    detail = report.detail
    assert detail.best is not None
    (best,) = [t for t in detail.trials if t.number == detail.best.number and not t.is_repeat]
    changes = {
        "config": made_trials.make_config("kneser_ney", 0),
        "curve": {1_000_000: (best.cost or 0.0) - math.log(10)},
    }
    trials = tuple(trial.model_copy(update=changes) if trial is best else trial for trial in detail.trials)
    entries = tuple(
        entry.model_copy(update={"is_counted": True, "figure": entry.figure / 10})
        if entry.number == best.number
        else entry
        for entry in report.leaderboard.entries
    )
    return report.model_copy(
        update={
            "detail": detail.model_copy(update={"trials": trials}),
            "leaderboard": report.leaderboard.model_copy(update={"entries": entries}),
        }
    )


def test_a_model_that_counts_leaves_trained_models_on_every_axis_and_is_a_line_next_to_them(
    report: StudyReport,
) -> None:
    counted = make_counted(report)
    charts = {chart.name: chart for chart in describe_page(counted).charts}
    (entry,) = [entry for entry in counted.leaderboard.entries if entry.is_counted]
    drawn = {row["name"] for row in charts["leaderboard"].tables["means"]}
    assert len(drawn) > 1
    assert entry.name in drawn
    trade_offs = [chart for name, chart in charts.items() if name.startswith("validation_by")]
    assert trade_offs
    for chart in trade_offs:
        assert [row["name"] for row in chart.tables["counted"]] == [entry.name]
        assert "The ring" not in chart.caption
        assert "Lines with names are models that count" in chart.caption
    (low, high) = charts["learning_curves"].to_spec(600)["layer"][-1]["encoding"]["y"]["scale"]["domain"]
    ends = [row["figure"] for row in charts["learning_curves"].tables["reports"] if row["last"]]
    assert low < entry.figure
    assert sum(figure < high for figure in ends) > 1


@pytest.mark.parametrize(
    ("hours", "title", "labels"),
    [
        ([0.00014, 0.0002], "core seconds per seed", [0.5, 0.55, 0.6, 0.65, 0.7]),
        ([0.01, 0.02], "core minutes per seed", [0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2]),
        ([1.0, 2.0], "core hours per seed", [1, 1.2, 1.4, 1.6, 1.8, 2]),
        ([1.0, 9.0], "core hours per seed, log scale", [1, 2, 5]),
    ],
)
def test_computing_times_are_labelled_in_their_unit_and_a_logarithmic_axis_says_so(
    hours: list[float], title: str, labels: list[float]
) -> None:
    axis: Any = place_amounts("amount", hours, "core hours per seed").to_dict()
    factor = float(re.findall(r"\* (\d+)", axis["axis"]["labelExpr"])[0])
    assert axis["title"] == title
    assert [factor * tick for tick in axis["axis"]["values"]] == pytest.approx(labels)


def test_an_axis_ends_at_four_times_the_best_perplexity() -> None:
    limit = find_drawn_limit([100.0, 120.0, 390.0, 5000.0, 130.0], Objective.PERPLEXITY)
    assert limit == 400
    assert describe_drawn_limit([390.0, 5000.0], limit) == " Values above 400 are beyond the axis."
    assert describe_drawn_limit([5000.0], 1518.4) == " Values above 1,518 are beyond the axis."
    assert describe_drawn_limit([100.0, 390.0], limit) == ""
    assert find_drawn_limit([0.2, 0.9], Objective.ACCURACY) == math.inf
    assert find_drawn_limit([], Objective.PERPLEXITY) == math.inf
