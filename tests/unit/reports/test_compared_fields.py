"""The charts and the page of a study that compares a field show the field's values in place of families."""

import re

import pytest

from memtune.reports.report_page.chart_parts import MarkScales, StudyChart
from memtune.reports.report_page.page import describe_page, render_page
from memtune.reports.report_page.parameter_charts import draw_parallel_coordinates, draw_slices
from memtune.reports.report_page.result_figures import draw_chart
from memtune.results.study.study_leaderboard import join_leaderboards
from memtune.results.study.study_report import StudyReport, make_study_report, report_corpus
from memtune.results.study.study_view import StudyView, open_view
from memtune.results.study_conclusion import format_alternatives
from memtune.settings import Settings
from tests.unit.reports.parsed_page import Page

ALTERNATIVES = {"layers 1", "layers 2"}


@pytest.fixture(scope="module")
def view(home: Settings) -> StudyView:
    """The study of two families as one that compares the number of their layers."""
    found = open_view("families", home)
    found.terms = found.terms.model_copy(update={"compare": "model.layers"})
    return found


@pytest.fixture(scope="module")
def compared(view: StudyView) -> StudyReport:
    return make_study_report(view)


@pytest.fixture(scope="module")
def compared_charts(compared: StudyReport) -> dict[str, StudyChart]:
    return {chart.name: chart for chart in describe_page(compared).charts}


def test_every_row_of_a_chart_has_the_alternative_and_a_name_that_starts_with_it(
    compared_charts: dict[str, StudyChart],
) -> None:
    marked = {
        name: [row for rows in chart.tables.values() for row in rows if "alternative" in row or "name" in row]
        for name, chart in compared_charts.items()
    }
    drawn = {name for name, rows in marked.items() if rows}
    assert {
        "leaderboard",
        "learning_curves",
        "best_so_far_by_tokens",
        "best_of",
        "parallel_coordinates",
    } <= drawn
    assert {"validation_by_parameters", "validation_by_state", "slice_model.width"} <= drawn
    for rows in marked.values():
        for row in rows:
            assert row["alternative"] in ALTERNATIVES
            assert re.fullmatch(
                rf"{row['alternative']} #\d+( seed \d)?", row.get("name", f"{row['alternative']} #0")
            )


def test_the_legend_and_the_rows_of_a_figure_have_the_alternatives(
    compared: StudyReport, compared_charts: dict[str, StudyChart]
) -> None:
    svg = draw_chart(compared_charts["leaderboard"], "layers").svg
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    assert set(texts) >= ALTERNATIVES
    assert {f"{entry.alternative} #{entry.number}" for entry in compared.leaderboard.entries} <= set(texts)
    assert not {"lstm", "rnn"} & set(texts)


def test_the_page_switches_alternatives_off_and_names_trials_by_them(compared: StudyReport) -> None:
    page = Page(render_page(compared))
    chips = {attrs["data-alternative"] for _, attrs in page.elements if "data-alternative" in attrs}
    assert chips == ALTERNATIVES
    rows = " ".join(page.list("th"))
    assert all(f"{entry.alternative} #{entry.number}" in rows for entry in compared.leaderboard.entries)
    ended = {f"{trial.alternative} #{trial.number}" for trial in compared.detail.ended_early}
    assert ended
    assert ended <= set(page.list("td"))


def test_the_report_of_a_corpus_has_the_alternatives_of_its_studies(
    compared: StudyReport, home: Settings
) -> None:
    found = report_corpus("tiny", home)
    joined, _ = join_leaderboards([("families", compared.leaderboard)], "tokens")
    label = found.labels[0].model_copy(update={"leaderboard": joined, "studies": (compared,)})
    report = found.model_copy(update={"labels": (label,)})
    page, charts = Page(render_page(report)), describe_page(report).charts
    chips = {attrs["data-alternative"] for _, attrs in page.elements if "data-alternative" in attrs}
    assert chips == ALTERNATIVES
    rows = " ".join(page.list("th"))
    names = [f"{entry.alternative} #{entry.number} (families)" for entry in compared.leaderboard.entries]
    assert all(name in rows for name in names)
    points = [row for chart in charts for row in chart.tables.get("points", ())]
    assert {row["alternative"] for row in points} == ALTERNATIVES
    assert {row["name"] for row in points} <= {*names}


def test_the_family_is_a_parameter_where_another_field_is_compared(
    compared: StudyReport, compared_charts: dict[str, StudyChart]
) -> None:
    chart = compared_charts["parallel_coordinates"]
    axes = list(dict.fromkeys(row["axis"] for row in chart.tables["trials"]))
    assert axes[0] == "layers"
    assert "family" in axes
    assert "from its layers to its figure" in chart.caption


def test_the_page_describes_a_configuration_by_what_its_alternative_does_not_say(
    compared: StudyReport,
) -> None:
    trials = {trial.identity: trial for trial in compared.detail.trials}
    page = " ".join(Page(render_page(compared)).list("th"))
    for entry in compared.leaderboard.entries:
        trial, words = trials[entry.identity], entry.model.split()
        assert words[0] == trial.family
        assert f"width={trial.fields['model.width']}" in words
        assert "layers=" not in entry.model
        assert entry.model in page


def test_alternatives_that_are_no_values_of_a_field_have_an_axis_of_their_own(compared: StudyReport) -> None:
    """As those of mixers with names, which stand for several fields."""
    names = {"layers 1": "mixer gla", "layers 2": "mixer kda"}
    trials = [
        trial.model_copy(update={"alternative": names[trial.alternative]}) for trial in compared.detail.trials
    ]
    detail = compared.detail.model_copy(update={"compare": "model.mixer", "trials": trials})
    chart = draw_parallel_coordinates(detail, MarkScales(names.values()))
    assert chart is not None
    rows = [row for row in chart.tables["trials"] if row["axis"] == "alternative"]
    assert {row["value"] for row in rows} == {*names.values()}
    assert all(row["value"] == row["alternative"] for row in rows)
    slices = draw_slices(detail, MarkScales(names.values()))
    assert "alternative" not in {drawn.title for drawn in slices}


def test_the_table_of_a_run_in_mlflow_names_the_alternatives(view: StudyView) -> None:
    cells = [line.split(" | ")[0].removeprefix("| ") for line in format_alternatives(view).splitlines()[2:]]
    assert {cell.partition(" #")[0] for cell in cells} == ALTERNATIVES
