"""Charts as files: the figure of a corpus's trials, the formats, and the script of pages."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import altair as alt
import pytest

from memtune.errors import StorageError
from memtune.objective import Objective
from memtune.reports.report_page import page
from memtune.reports.report_page.chart_parts import (
    LIGHT_COLOURS,
    MarkScales,
    StudyChart,
    make_config,
    plot_rows,
    resolve_colours,
)
from memtune.reports.report_page.result_figures import draw_chart
from memtune.reports.report_page.trade_off_charts import draw_trials
from memtune.seed_statistics import Estimate
from memtune.tracking import LeaderboardRow
from memtune.trial_state import StopReason, TrialEnd, TrialState

SIGNATURES = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<svg"}


def make_row(
    figure: float, family: str = "lstmn", parameters: int = 70_000, *, place: int | None = None
) -> LeaderboardRow:
    """A trial; one with a place is of full length, another one was stopped."""
    return LeaderboardRow(
        name=f"{family} #{figure}",
        family=family,
        alternative=family,
        study="s",
        trial="t",
        run_id=f"{family}-{figure}",
        state=TrialState.STOPPED if place is None else TrialState.COMPLETE,
        end=TrialEnd(reason=StopReason.BUDGET),
        protocol="sentence",
        corpus_digest="d",
        parameters={"model.family": family},
        parameter_count=parameters,
        tokens=1000,
        objective=Objective.PERPLEXITY,
        figure=figure,
        configuration=f"{family}-{figure}",
        place=place,
        estimate=None if place is None else Estimate(cost=math.log(figure)),
    )


def draw(*rows: LeaderboardRow, ideal: float | None = None) -> StudyChart:
    chart = draw_trials(rows, ideal)
    assert chart is not None
    return chart


def test_the_best_has_a_ring_and_what_no_other_beats_is_on_the_front() -> None:
    chart = draw(
        make_row(50.0, place=1, parameters=900_000),
        make_row(60.0, "rnn", 90_000, place=2),
        make_row(70.0, "rnn", 200_000, place=3),
    )
    assert {round(row["figure"]) for row in chart.tables["points"] if row["best"]} == {50}
    assert {round(row["figure"]) for row in chart.tables["front"]} == {50, 60}


def test_a_trial_of_another_number_of_tokens_is_marked_apart() -> None:
    chart = draw(make_row(50.0, place=1), make_row(40.0, "rnn", 140_000))
    assert [row["figure"] for row in chart.tables["points"]] == [pytest.approx(50.0)]
    assert [row["figure"] for row in chart.tables["others"]] == [40.0]
    assert "another number of tokens" in chart.caption


def test_the_dots_of_a_mean_leave_out_the_trial_that_was_selected() -> None:
    """It is no trial of another number of tokens either."""
    mean = Estimate(cost=math.log(51), seeds=2)
    first = make_row(50.0, place=1).model_copy(update={"name": "lstmn #3 seed 1", "estimate": mean})
    same = {"configuration": first.configuration, "state": TrialState.COMPLETE}
    again = make_row(52.0).model_copy(update={"name": "lstmn #3 seed 2", **same})
    chart = draw(first, again, make_row(40.0).model_copy(update={"name": "lstmn #3", **same}))
    assert [row["figure"] for row in chart.tables["points"]] == [pytest.approx(51.0)]
    assert [row["figure"] for row in chart.tables["seeds"]] == [50.0, 52.0]
    assert chart.tables["others"] == []


def test_families_of_equal_size_are_strips_and_others_are_not() -> None:
    equal = draw(make_row(50.0, place=1), make_row(60.0, "lstm", 71_000, place=2))
    assert equal.title == "At equal parameters"
    assert [text for text in read_texts(draw_chart(equal, "ptb").svg) if text in ("lstm", "lstmn")][:2] == [
        "lstmn",
        "lstm",
    ]
    unequal = draw(make_row(50.0, place=1), make_row(60.0, "lstm", 710_000, place=2))
    assert unequal.title == "Against parameters"
    assert "parameters, log scale" in read_texts(draw_chart(unequal, "ptb").svg)


def test_a_model_that_counts_is_a_line_with_its_name() -> None:
    counted = make_row(55.0, "kneser_ney", place=2).model_copy(update={"parameter_count": None})
    picture = draw_chart(draw(make_row(50.0, place=1), counted), "ptb").svg
    assert "kneser_ney 55" in read_texts(picture)


def test_an_accuracy_beside_a_line_is_in_per_cent_as_on_its_axis() -> None:
    asked = {"objective": Objective.ACCURACY, "estimate": Estimate(cost=0.45)}
    counted = make_row(0.55, "kneser_ney", place=2).model_copy(update={**asked, "parameter_count": None})
    picture = draw_chart(draw(make_row(0.55, place=1).model_copy(update=asked), counted), "ptb").svg
    assert "kneser_ney 55 %" in read_texts(picture)


def test_a_file_names_its_subject_and_explains_its_signs() -> None:
    chart = draw(make_row(50.0, place=1), make_row(60.0, "rnn", 9_000, place=2))
    texts = read_texts(draw_chart(chart, "ptb").svg)
    assert "ptb: against parameters" in texts
    assert any("Pareto front" in text for text in texts)
    assert {"lstmn", "rnn"} <= set(texts)


def test_a_legend_has_marks_with_solid_outlines_where_lines_are_dashed() -> None:
    scales, rows = MarkScales(["lstm", "rnn"]), plot_rows("reports")
    marks = rows.mark_point().encode(x="tokens:Q", color=scales.colour(), shape=scales.shape())
    lines = rows.mark_line().encode(x="tokens:Q", color=scales.colour(), strokeDash=scales.dash())
    reports = [{"alternative": family, "tokens": tokens} for family in ("lstm", "rnn") for tokens in (1, 2)]
    chart = StudyChart("curves", "Curves", "", alt.layer(lines, marks), {"reports": reports})
    groups = list(ET.fromstring(draw_chart(chart, "ptb").svg).iter())
    symbols = [path for group in groups if "role-legend-symbol" in group.get("class", "") for path in group]
    assert len(symbols) == 2
    assert not [symbol for symbol in symbols if "stroke-dasharray" in symbol.attrib]
    assert any("stroke-dasharray" in element.attrib for element in groups)


def read_texts(picture: str) -> list[str]:
    elements = ET.fromstring(picture).iter()
    return [" ".join(element.itertext()) for element in elements if element.tag.endswith("text")]


def test_without_a_trained_model_there_is_no_figure() -> None:
    assert draw_trials([], None) is None
    assert draw_trials([make_row(math.inf)], None) is None


@pytest.mark.parametrize("suffix", SIGNATURES)
def test_the_suffix_chooses_the_format(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"ptb{suffix}"
    draw_chart(draw(make_row(50.0, place=1)), "ptb").write(path)
    assert path.read_bytes().startswith(SIGNATURES[suffix])


def test_a_figure_that_cannot_be_written_is_named() -> None:
    with pytest.raises(StorageError, match=r"/proc/nothing/ptb.svg cannot be written"):
        draw_chart(draw(make_row(50.0, place=1)), "ptb").write(Path("/proc/nothing/ptb.svg"))


def test_the_script_of_pages_is_bundled_once_per_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path))
    bundled = iter(["a </script> b"])
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda _: next(bundled))
    load = page.load_vega.__wrapped__
    assert load() == load() == "a <\\/script> b"


def test_a_script_that_others_may_have_written_is_bundled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path))
    bundled = iter(["first", "second"])
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda _: next(bundled))
    load = page.load_vega.__wrapped__
    load()
    (file,) = tmp_path.rglob("*.js")
    file.chmod(0o666)
    assert load() == "second"


def test_files_have_colours_in_place_of_the_variables_of_a_page() -> None:
    resolved = json.dumps(resolve_colours(make_config(has_legend=True)))
    assert "var(" not in resolved
    assert LIGHT_COLOURS["var(--ink)"] in resolved
