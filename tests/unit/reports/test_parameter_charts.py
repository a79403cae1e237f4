"""Parallel coordinates: a line for each trial over the parameters that a study has searched."""

import re

import pytest

from memtune.reports.report_page import parameter_charts
from memtune.reports.report_page.chart_parts import MarkScales, StudyChart
from memtune.reports.report_page.page import list_alternatives
from memtune.reports.report_page.parameter_charts import draw_parallel_coordinates, format_level, make_axis
from memtune.results.study.study_report import StudyReport
from memtune.trial_state import TrialState


def test_a_parameter_that_a_family_lacks_has_a_place_for_absent_values(charts: dict[str, StudyChart]) -> None:
    rows = [row for row in charts["parallel_coordinates"].tables["trials"] if row["axis"] == "activation"]
    assert {row["value"] for row in rows if row["alternative"] == "lstm"} == {"absent"}
    assert "absent" not in {row["value"] for row in rows if row["alternative"] == "rnn"}


def test_trials_that_ended_early_are_marked_in_parallel_coordinates(
    report: StudyReport, charts: dict[str, StudyChart]
) -> None:
    chart = charts["parallel_coordinates"]
    states = {trial.name: trial.state is TrialState.COMPLETE for trial in report.detail.trials}
    assert False in states.values()
    assert all(row["complete"] is states[row["name"]] for row in chart.tables["trials"])
    assert "hollow marks ended early" in chart.caption


def test_a_diverged_trial_does_not_squeeze_the_axis_of_figures(report: StudyReport) -> None:
    """Its line ends with the axis, at four times the best; the tooltip has its value."""
    detail = report.detail
    place, trial = next((i, t) for i, t in enumerate(detail.trials) if not t.is_repeat and t.cost)
    diverged = trial.model_copy(update={"curve": {900: (trial.cost or 0.0) + 9.0}})
    trials = (*detail.trials[:place], diverged, *detail.trials[place + 1 :])
    changed = detail.model_copy(update={"trials": trials})
    chart = draw_parallel_coordinates(changed, MarkScales(list_alternatives(report)))
    assert chart is not None
    ends = {
        row["name"]: row["value"] for row in chart.tables["trials"] if row["axis"].startswith("validation")
    }
    best = min(map(float, ends.values()))
    assert float(ends[trial.name]) > 1000 * best
    ticks = [tick for tick in chart.tables["ticks"] if tick["axis"].startswith("validation")]
    assert all(float(tick["text"].replace(",", "")) <= 4.01 * best for tick in ticks)
    (limit,) = re.findall(r"Values above ([\d.]+) are at the end of the last axis", chart.caption)
    assert float(limit) == pytest.approx(4 * best, rel=0.01)


def test_parallel_coordinates_format_each_field_of_a_trial_three_times(
    report: StudyReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def format_and_count(value: object) -> str:
        read.append(value)
        return format_level(value)

    monkeypatch.setattr(parameter_charts, "format_level", format_and_count)
    trials = report.detail.trials
    assert draw_parallel_coordinates(report.detail, MarkScales(list_alternatives(report))) is not None
    fields = {name for trial in trials for name in trial.fields}
    # To choose the axes, for the places and the tooltips; the family, the figure and its place are no fields.
    assert len(read) <= len(trials) * (3 * len(fields) + 3) + 1


def test_labels_of_an_axis_have_room_at_the_width_of_a_chart() -> None:
    families = ["lstm", "memory_network", "recurrent_memory", "scrn", "stack_lstm"]
    axis = make_axis("model.family", "family", families)
    assert axis is not None

    def list_labels(width: float) -> list[str]:
        return [tick.text for tick in axis.ticks if tick.min_pixels <= width < tick.max_pixels]

    assert list_labels(230) == ["lstm", "stack_lstm"]
    assert list_labels(990) == families


@pytest.mark.parametrize(
    "values",
    [
        pytest.param((16, 140, 264, 388, 512), id="even"),
        pytest.param((16, 38, 91, 215, 512), id="even by ratio"),
        pytest.param((1, 2, 3), id="of one magnitude"),
    ],
)
def test_an_axis_has_the_scale_that_spreads_its_values_evenly(values: tuple[int, ...]) -> None:
    axis = make_axis("model.width", "width", values)
    assert axis is not None
    assert axis.find_place(values[len(values) // 2]) == pytest.approx(0.5, abs=0.01)
    assert axis.title == ("width, log scale" if values[1] == 38 else "width")
