"""Results in Python: data frames, HTML tables with escaped texts, short representations and figures."""

import html
from pathlib import Path
from typing import Any

import pytest

import memtune
from memtune import api
from memtune.data_frames import MAX_ROWS, ResultList, make_frame
from memtune.errors import ArgumentError, ConfigurationError
from memtune.results.study.scaling_laws import FamilyScaling, Prediction, ScalingReport
from memtune.results.study.study_detail import StudyDetail
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.presence import require
from tests.reported_study import home

__all__ = ["home"]

MAX_CHARACTERS = 160
"""Of a representation: a line or two."""


@pytest.fixture(scope="module")
def results(home: Settings) -> dict[str, Any]:
    """Every kind of result of one study, by the function that returns it."""
    return {
        "show_study": memtune.show_study("families", home),
        "compare": memtune.compare("tiny", settings=home),
        "list_studies": memtune.list_studies(home),
        "study_cost": memtune.study_cost("families", home),
        "find_champions": memtune.find_champions(settings=home),
        "evaluate": memtune.evaluate("models:/tiny@champion", settings=home),
        "extrapolate_study": make_scaling_report(),
    }


def make_scaling_report() -> ScalingReport:
    """A report of two families, without fits."""
    now = Prediction(compute=1e9, parameters=1e4, tokens=1e5, cost=3.0, low=2.9, high=3.1)
    families = [
        FamilyScaling(
            family=family,
            irreducible=2.0,
            size_coefficient=1.0,
            size_exponent=0.3,
            data_coefficient=1.0,
            data_exponent=0.3,
            sizes=3,
            reports=((1e8, 3.4), (1e9, 3.0)),
            predictions=(now, now.model_copy(update={"compute": 1e10, "cost": cost})),
            present=now,
            larger=now.model_copy(update={"compute": 1e10, "cost": cost}),
            best_share=share,
            backtest_error=None,
        )
        for family, cost, share in (("lstm", 2.5, 0.9), ("rnn", 2.7, 0.1))
    ]
    return ScalingReport(compute=1e9, factor=10.0, families=tuple(families))


@pytest.mark.parametrize(
    "name",
    [
        "show_study",
        "compare",
        "list_studies",
        "study_cost",
        "find_champions",
        "evaluate",
        "extrapolate_study",
    ],
)
def test_every_result_is_a_data_frame_and_a_table_with_escaped_texts(
    name: str, results: dict[str, Any]
) -> None:
    result = results[name]
    frame, page = result.to_frame(), result._repr_html_()
    assert len(frame) > 0
    assert "<table" in page
    assert "<script" not in page
    assert "<img" not in page


def test_a_question_with_markup_is_shown_as_text(results: dict[str, Any]) -> None:
    for name in ("show_study", "list_studies"):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in results[name]._repr_html_()


def test_the_page_of_a_study_begins_with_its_answer(results: dict[str, Any]) -> None:
    detail: StudyDetail = results["show_study"]
    assert detail._repr_html_().startswith(f"<p>{html.escape(require(detail.verdict).text)}</p>")


def test_each_entry_of_a_list_is_a_table(results: dict[str, Any]) -> None:
    for name in ("list_studies", "find_champions"):
        (entry, *_) = results[name]
        assert len(entry.to_frame()) == 1
        assert "<table" in entry._repr_html_()
        assert "<script" not in entry._repr_html_()
        assert repr(entry) == str(entry)
        assert len(repr(entry)) <= MAX_CHARACTERS


@pytest.mark.parametrize("name", ["show_study", "compare", "extrapolate_study", "study_cost", "evaluate"])
def test_results_in_print_are_short(name: str, results: dict[str, Any]) -> None:
    assert len(repr(results[name])) <= MAX_CHARACTERS
    assert repr(results[name]) == str(results[name])


def test_the_best_one_is_the_same_everywhere(results: dict[str, Any]) -> None:
    detail, comparison = results["show_study"], results["compare"]
    figure = memtune.find_champions(settings=None)[0].figure
    assert comparison.best.ranked_figure == pytest.approx(figure)
    assert results["list_studies"].to_frame().figure[0] == pytest.approx(figure)
    assert detail.best.name in repr(detail)
    assert results["extrapolate_study"].best.family == "lstm"


def test_curves_have_a_row_for_each_report(results: dict[str, Any]) -> None:
    detail, comparison = results["show_study"].curves(), results["compare"].curves()
    assert set(detail.columns) >= {"name", "tokens", "cost", "perplexity"}
    assert sorted(detail.cost) == pytest.approx(sorted(comparison.cost))
    assert set(comparison.run_id) == set(results["compare"].to_frame().run_id)
    assert list(results["extrapolate_study"].curves().family) == ["lstm", "lstm", "rnn", "rnn"]


def test_the_cost_by_state_adds_up_to_the_total(results: dict[str, Any]) -> None:
    frame = results["study_cost"].to_frame().set_index("by")
    assert frame.loc["state", "tokens"].sum() == frame.loc["total", "tokens"]


def test_list_show_and_cost_count_repeats_apart_from_the_trials_of_the_search(
    results: dict[str, Any],
) -> None:
    (listed,), shown = results["list_studies"], results["show_study"].summary
    assert (sum(listed.trials.values()), listed.repeats) == (12, 4)
    assert {**shown.trials, "repeats": shown.repeats} == {**listed.trials, "repeats": 4}
    assert {row.group: row.trials for row in results["study_cost"].by_state} == {
        **listed.trials,
        "repeats": 4,
    }
    assert shown.counts.endswith(", 4 repeats")


def test_a_search_returns_its_study_with_best_tables_and_figures(
    study_file: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_record_report", lambda study, view, recorder: None)  # half of its time
    result = memtune.run_search(
        study_file, {"budget.trials": 2}, settings=settings, executor=InProcessExecutor()
    )
    assert repr(result) == f"SearchResult({result.id}: 2 trials)"
    assert result.best is not None
    assert len(result.to_frame()) == 2
    assert len(result.curves()) == 6
    assert result.verdict == result.detail.verdict
    assert "best configuration" in result._repr_html_()
    figures = memtune.draw_figures(result)
    assert {"leaderboard", "learning_curves"} <= set(figures)
    assert figures["leaderboard"].svg.startswith("<svg")
    assert "data:image/svg+xml;base64," in figures._repr_html_()
    assert "<svg" not in figures._repr_html_()
    written = figures["learning_curves"].write(tmp_path / "curves.png")
    assert written.read_bytes().startswith(b"\x89PNG")
    assert "leaderboard" in repr(figures)
    with pytest.raises(KeyError, match='no figure "leaderbord"; did you mean "leaderboard"'):
        figures["leaderbord"]
    with pytest.raises(ConfigurationError, match=r'no figure format ".gif"'):
        figures["leaderboard"].write(tmp_path / "curves.gif")


def test_figures_of_a_comparison_and_of_scaling_are_those_of_the_commands(
    results: dict[str, Any], tmp_path: Path
) -> None:
    assert list(memtune.draw_figures(results["compare"])) == ["validation_by_parameters"]
    figures = memtune.draw_figures(results["extrapolate_study"])
    assert {path.suffix for path in figures.write(tmp_path)} == {".svg", ".png", ".pdf"}
    with pytest.raises(ArgumentError, match="result must be the name of a study, or a result of run_search"):
        memtune.draw_figures(3)  # type: ignore[arg-type]


def test_a_dry_run_is_a_pair_and_a_table(study_file: Path, settings: Settings) -> None:
    checked = memtune.dry_run(study_file, settings=settings)
    resolved, samples = checked
    frame = checked.to_frame()
    assert (checked.id, len(frame)) == (resolved.id, len(samples))
    assert {"family", "parameters", "model.width", "model.layers"} <= set(frame)
    assert "nothing was started" in checked._repr_html_()
    assert repr(checked) == f"DryRun({resolved.id}: 5 samples)"
    assert repr(resolved) == f"ResolvedStudy({resolved.id}: tiny, 4 trials)"


def test_a_training_and_its_model_print_in_a_line(settings: Settings) -> None:
    trial = {"corpus": "tiny", "model": {"family": "lstm", "width": 4}, "training": {"tokens": 600}}
    trained = memtune.train({**trial, "training": {"tokens": 600, "report_every": 300}}, settings=settings)
    assert list(trained.curves().tokens) == [report.tokens for report in trained.curve]
    assert repr(trained).startswith("TrainResult(lstm: best validation perplexity ")
    assert "<table" in trained._repr_html_()
    model = memtune.load("models:/tiny@champion", settings=settings)
    assert repr(model).startswith("LoadedModel(models:/tiny/1: lstm, ")
    assert repr(memtune.open_corpus("tiny")).startswith("Corpus(tiny: vocabulary of 10; train 340 tokens, ")


def test_a_long_list_shows_its_first_rows_and_counts_the_others() -> None:
    many = ResultList(range(MAX_ROWS + 5), "numbers <b>", lambda number: {"number": number})
    assert len(many.to_frame()) == MAX_ROWS + 5
    page = many._repr_html_()
    assert "5 more rows" in page
    assert "numbers &lt;b&gt;" in page
    assert page.count("<tr") == MAX_ROWS + 1
    assert ResultList([], "nothing", dict)._repr_html_() == "<p>nothing</p>"


def test_figures_that_no_row_has_are_missing_numbers() -> None:
    frame = make_frame([{"name": "a", "low": None}, {"name": "b", "low": None}])
    assert [str(kind) for kind in frame.dtypes[1:]] == ["float64"]
    assert frame.to_csv(index=False) == "name,low\na,\nb,\n"
    assert list(make_frame([], ["low"]).columns) == ["low"]


def test_a_study_without_a_validation_has_a_table(results: dict[str, Any]) -> None:
    detail: StudyDetail = results["show_study"]
    summary = detail.summary.model_copy(update={"best": None})
    empty = detail.model_copy(update={"summary": summary, "verdict": None, "alternatives": (), "trials": ()})
    assert empty._repr_html_().startswith("<p>no trial has a result yet</p>")
    assert "no trial has a result yet" in repr(empty)


def test_a_study_whose_leader_is_open_prints_no_best(results: dict[str, Any]) -> None:
    detail: StudyDetail = results["show_study"]
    open_one = detail.summary.model_copy(update={"is_undecided": True})
    for shown in (open_one, detail.model_copy(update={"summary": open_one})):
        assert ", undecided: " in repr(shown)
    assert list(open_one.to_frame().is_undecided) == [True]
