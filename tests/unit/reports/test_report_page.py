"""The report of a study is one page that answers its question, needs nothing else, and takes no orders."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.api import run_search
from memtune.cli.command_line import app
from memtune.objective import Objective
from memtune.reports.report_page import page as page_module
from memtune.reports.report_page import parameter_charts
from memtune.reports.report_page.chart_parts import (
    LIGHT_COLOURS,
    FamilyScales,
    describe_drawn_limit,
    find_drawn_limit,
    make_config,
    resolve_colours,
)
from memtune.reports.report_page.page import FOLDER, digest_script, embed_json, render_page
from memtune.reports.report_page.page_content import describe_page, list_families
from memtune.reports.report_page.parameter_axes import format_level, make_axis
from memtune.reports.report_page.parameter_charts import draw_parallel_coordinates
from memtune.results.fingerprints import Fingerprint
from memtune.results.study import study_report
from memtune.results.study.study_report import StudyReport, report_corpus, report_study
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking.mlflow_connection import connect
from memtune.trial_state import TrialState
from tests.reported_study import HOSTILE_QUESTION, RNN_TOML
from tests.unit.results import made_trials

MAX_BYTES = 3_000_000
VOID = {"meta", "link", "img", "br", "input", "hr", "path"}
runner = CliRunner()


class Page(HTMLParser):
    """The elements and the texts of a page, as a browser's parser sees them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data):
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def list(self, tag: str) -> list[str]:
        return [" ".join(text.split()) for text in self.texts.get(tag, ())]


@pytest.fixture(scope="module")
def html(report: StudyReport) -> str:
    return render_page(report)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_the_page_opens_with_the_question_and_its_answer(page: Page, report: StudyReport) -> None:
    assert report.verdict is not None
    assert page.list("h1") == [" ".join(HOSTILE_QUESTION.split())]
    assert page.list("h2")[:2] == ["Answer", "Leaderboard"]
    assert report.verdict.headline in page.list("p")
    names = page.list("dt")
    for fact in ("best configuration", "validation perplexity", "parameters", "training"):
        assert fact in names
    assert any(name.startswith("margin to") for name in names)


def test_the_leaderboard_has_every_configuration_of_full_length(page: Page, report: StudyReport) -> None:
    cells = page.list("th")
    for entry in report.leaderboard.entries:
        assert any(cell.startswith(entry.name) for cell in cells)
        assert f"{entry.figure:,.3f}" in page.list("td")
    assert report.leaderboard.entries


def test_texts_of_users_are_texts_on_the_page(page: Page, html: str) -> None:
    assert [attrs for tag, attrs in page.elements if tag == "img"] == []
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 4
    assert "49" not in page.list("h1")[0]
    assert html.count("alert(1)</script>") == 0
    values = json.loads(re.findall(r'id="values">(.*?)</script>', html, re.DOTALL)[0])
    assert values["detail"]["summary"]["question"] == HOSTILE_QUESTION


def test_the_page_asks_for_nothing_and_runs_only_its_own_scripts(page: Page, html: str) -> None:
    for tag, attrs in page.elements:
        assert not {"src", "srcset", "data"} & attrs.keys(), tag
        assert not any(name.startswith("on") for name in attrs), tag
        if tag == "a":
            assert (attrs["href"] or "").startswith("#")
    (policy,) = [attrs["content"] or "" for _, attrs in page.elements if "http-equiv" in attrs]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        assert f"'sha256-{digest_script(script)}'" in policy


def test_every_chart_has_a_place_and_every_place_a_chart(page: Page, report: StudyReport, html: str) -> None:
    places = [attrs["data-chart"] for _, attrs in page.elements if "data-chart" in attrs]
    charts = json.loads(re.findall(r'id="charts">(.*?)</script>', html, re.DOTALL)[0])["charts"]
    assert places == list(charts) == [chart.name for chart in describe_page(report).charts]
    expected = {
        "leaderboard",
        "learning_curves",
        "best_so_far_by_tokens",
        "parallel_coordinates",
        "importance",
    }
    assert expected <= charts.keys()


def test_charts_follow_the_schema_of_vega_lite(report: StudyReport) -> None:
    for chart in describe_page(report).charts:
        assert "vega-lite" in chart.chart.to_dict(validate=True)["$schema"]


def test_the_run_of_the_study_has_the_report(home: Settings, report: StudyReport, tmp_path: Path) -> None:
    client = connect(home.tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'study'")
    stored = client.download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert report.verdict is not None
    assert report.verdict.headline in Page(Path(stored).read_text()).list("p")


def test_links_within_the_page_have_a_target(page: Page) -> None:
    targets = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    links = {(attrs["href"] or "")[1:] for tag, attrs in page.elements if tag == "a"}
    assert links <= targets
    identifiers = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))


def test_the_page_is_small(html: str) -> None:
    assert len(html.encode()) < MAX_BYTES


def test_learning_curves_have_every_seed_and_mark_what_ended_early(report: StudyReport) -> None:
    charts = {chart.name: chart for chart in describe_page(report).charts}
    rows = charts["learning_curves"].tables["reports"]
    trials = report.detail.trials
    assert {row["name"] for row in rows} == {trial.name for trial in trials}
    assert any(trial.is_repeat for trial in trials)
    stopped = {trial.name for trial in trials if trial.state is TrialState.STOPPED}
    assert {row["name"] for row in rows if not row["complete"]} == stopped != set()


def test_a_chart_with_a_front_counts_its_single_seeds(report: StudyReport) -> None:
    captions = {chart.caption for chart in describe_page(report).charts if "Filled marks" in chart.caption}
    assert captions
    assert all("single seeds" in caption for caption in captions)


def test_the_leaderboard_chart_has_a_dot_for_every_seed(report: StudyReport) -> None:
    charts = {chart.name: chart for chart in describe_page(report).charts}
    costs = [cost for entry in report.leaderboard.entries for cost in entry.cost_by_seed.values()]
    drawn = charts["leaderboard"].tables["seeds"]
    assert sorted(row["figure"] for row in drawn) == sorted(map(Objective.PERPLEXITY.compute_figure, costs))
    assert [row["name"] for row in charts["leaderboard"].tables["means"] if row["best"]] == [
        report.detail.best.name if report.detail.best else ""
    ]


def test_a_parameter_that_a_family_lacks_has_a_place_for_absent_values(report: StudyReport) -> None:
    charts = {chart.name: chart for chart in describe_page(report).charts}
    rows = [row for row in charts["parallel_coordinates"].tables["trials"] if row["axis"] == "activation"]
    assert {row["value"] for row in rows if row["family"] == "lstm"} == {"absent"}
    assert "absent" not in {row["value"] for row in rows if row["family"] == "rnn"}


def test_trials_that_ended_early_are_marked_in_parallel_coordinates(report: StudyReport) -> None:
    (chart,) = [c for c in describe_page(report).charts if c.name == "parallel_coordinates"]
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
    chart = draw_parallel_coordinates(changed, FamilyScales(list_families(report)))
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


def test_parallel_coordinates_read_each_field_of_a_trial_twice(
    report: StudyReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def format_and_count(value: object) -> str:
        read.append(value)
        return format_level(value)

    monkeypatch.setattr(parameter_charts, "format_level", format_and_count)
    trials = report.detail.trials
    assert draw_parallel_coordinates(report.detail, FamilyScales(list_families(report))) is not None
    fields = {name for trial in trials for name in trial.fields}
    # To choose the axes and for the tooltips; the family, the figure and its place are no fields.
    assert len(read) <= len(trials) * (2 * len(fields) + 3) + 1


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


def test_an_axis_ends_at_four_times_the_best_perplexity() -> None:
    limit = find_drawn_limit([100.0, 120.0, 390.0, 5000.0, 130.0], Objective.PERPLEXITY)
    assert limit == 400
    assert describe_drawn_limit([390.0, 5000.0], limit) == " Values above 400 are beyond the axis."
    assert describe_drawn_limit([100.0, 390.0], limit) == ""
    assert find_drawn_limit([0.2, 0.9], Objective.ACCURACY) == math.inf
    assert find_drawn_limit([], Objective.PERPLEXITY) == math.inf


def test_labels_of_an_axis_have_room_at_the_width_of_a_chart() -> None:
    families = ["lstm", "memory_network", "recurrent_memory", "scrn", "stack_lstm"]
    axis = make_axis("model.family", "family", families)
    assert axis is not None

    def list_labels(width: float) -> list[str]:
        return [tick.text for tick in axis.ticks if tick.min_pixels <= width < tick.max_pixels]

    assert list_labels(230) == ["lstm", "stack_lstm"]
    assert list_labels(990) == families


def test_values_that_are_no_json_become_null_and_signs_of_markup_are_escaped() -> None:
    text = str(embed_json({"a": float("inf"), "b": [float("nan"), "</script>&\u2028"]}))
    assert json.loads(text) == {"a": None, "b": [None, "</script>&\u2028"]}
    assert not set("<>&\u2028") & set(text)


def test_files_have_colours_in_place_of_the_variables_of_a_page() -> None:
    resolved = json.dumps(resolve_colours(make_config(has_legend=True)))
    assert "var(" not in resolved
    assert LIGHT_COLOURS["var(--ink)"] in resolved


def test_a_report_has_the_fingerprint_of_each_family_beside_its_perplexity(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {
        "probe": "parity",
        "corpus": "probe-parity",
        "parameters": 9,
        "rate": 0.01,
        "valid": [0.9],
        "test": {"1": [0.875]},
        "chance": 0.5,
    }
    found = [
        Fingerprint.model_validate_json(
            json.dumps({"name": name, "model": model, "terms": {}, "results": [result]})
        )
        for name, model in (("lstm", {"family": "lstm"}), ("deep", {"family": "lstm", "layers": 9}))
    ]
    monkeypatch.setattr(study_report, "list_fingerprints", lambda settings: found)
    report = report_study("families", home)
    (probed,) = report.probed
    (best,) = [entry for entry in report.leaderboard.entries if entry.family == "lstm"][:1]
    assert (probed.name, probed.figure, probed.fingerprint) == (best.name, best.figure, found[0])
    texts = Page(render_page(report)).texts
    assert "parity" in texts["th"]
    assert "87.5 %" in texts["td"]


def test_the_report_of_a_corpus_has_its_champion_and_its_studies(home: Settings) -> None:
    found = report_corpus("tiny", home)
    (label,) = found.labels
    assert label.champion is not None
    page = Page(render_page(found))
    assert page.list("h1") == ["Which model is best for tiny?"]
    assert any("models:/tiny@champion" in text for text in page.list("p"))
    assert " ".join(HOSTILE_QUESTION.split()) in " ".join(page.list("td"))
    assert [entry.figure for entry in label.leaderboard.entries] == [
        entry.figure for entry in label.studies[0].leaderboard.entries
    ]


def test_the_command_writes_the_page_the_figures_and_the_values(
    home: Settings, report: StudyReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target, figures = tmp_path / "new" / "families.html", tmp_path / "figures"
    done = runner.invoke(app, ["report", "families", "--out", str(target), "--figures", str(figures)])
    assert done.exit_code == 0, done.output
    assert target.read_text().startswith("<!doctype html>")
    names = {chart.name for chart in describe_page(report).charts}
    assert {path.name for path in figures.iterdir()} == {
        f"{name}.{end}" for name in names for end in ("svg", "png", "pdf")
    }
    assert (figures / "leaderboard.pdf").read_bytes().startswith(b"%PDF")
    printed = runner.invoke(app, ["report", "families", "--json"])
    values = json.loads(printed.output)
    assert values["detail"]["verdict"]["headline"] == (report.verdict and report.verdict.headline)
    assert not (tmp_path / "report.html").exists()


def test_a_report_is_written_where_the_locale_has_no_encoding_for_its_files(
    home: Settings, tmp_path: Path
) -> None:
    """Its texts and its own style and script are UTF-8; what is printed is not."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    target = tmp_path / "report.html"
    done = subprocess.run(
        [sys.executable, "-m", "memtune", "report", "families", "--out", str(target)],
        env={**os.environ, **ascii_only},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (FOLDER / "report_page.css").read_text(encoding="utf-8") in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], 'no one study "nothing"'),
        (["--corpus", "nothing"], 'no study has run on corpus "nothing"'),
        (["families", "--out", "/proc/nothing/report.html"], "cannot be written"),
        (["families", "--figures", "/proc/nothing"], "cannot be written"),
    ],
)
def test_what_cannot_be_reported_is_named(
    home: Settings, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(app, ["report", *arguments])
    assert done.exit_code == 1
    assert message in str(done.exception)


@pytest.mark.parametrize("arguments", [[], ["families", "--corpus", "tiny"]])
def test_a_report_is_of_a_study_or_of_a_corpus(arguments: list[str]) -> None:
    assert runner.invoke(app, ["report", *arguments]).exit_code == 2


def test_a_study_of_one_trial_and_one_whose_corpus_is_gone_have_a_report(
    study_file: Path, settings: Settings
) -> None:
    study_file.write_text(study_file.read_text().replace("trials = 4", "trials = 1"))
    run_search(study_file, settings=settings, executor=InProcessExecutor())
    page = Page(render_page(report_study("layers", settings)))
    assert any("no other configuration has full length" in text for text in page.list("p"))
    (Path(settings.corpus_store) / "tiny").rename(Path(settings.corpus_store) / "other")
    lost = report_study("layers", settings)
    assert lost.provenance.corpus_digest is None
    assert "the corpus is not in the store any more" in " ".join(Page(render_page(lost)).list("td"))


REPEATED_BEST = """
[repeats]
best = 1
seeds = 2

[early_stopping]
kind = "none"
"""


def test_a_winner_that_alone_is_repeated_has_a_page_without_a_runner_up_and_no_optimistic_figure(
    study_file: Path, settings: Settings
) -> None:
    study_file.with_name("rnn.toml").write_text(RNN_TOML)
    two_families = study_file.read_text().replace('["space.toml"]', '["space.toml", "rnn.toml"]')
    study_file.write_text(two_families + REPEATED_BEST)
    for resume in (False, True):
        run_search(study_file, settings=settings, executor=InProcessExecutor(), resume=resume)
        report = report_study("layers", settings)
        assert report.verdict is not None
        page = Page(render_page(report))
        assert report.verdict.headline in page.list("p")
        (chosen,) = [text for text in page.list("p") if text.startswith("Chosen by")]
        assert "The trial that selected it is left out of its figure." in chosen
        assert "optimistic" not in chosen


def test_a_report_that_fails_leaves_the_study_complete(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of a template is no error of a file or of memtune, and still a warning with its reason."""
    broken = study_file.with_name("templates")
    shutil.copytree(page_module.FOLDER, broken)
    (broken / "study_page.html.jinja").write_text("{{ report.nothing }}")
    monkeypatch.setattr(page_module, "FOLDER", broken)
    page_module._open_templates.cache_clear()
    try:
        result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    finally:
        page_module._open_templates.cache_clear()
    assert result.registration is not None
    assert result.registration.champion is not None
    assert result.is_recorded
    client = connect(settings.tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'study'")
    assert run.info.status == "FINISHED"
    assert run.data.tags["memtune.winner"]
    (message,) = [record.getMessage() for record in caplog.records if "report" in record.getMessage()]
    assert "has no attribute 'nothing'" in message


def test_a_study_without_a_validation_says_so(report: StudyReport) -> None:
    empty = report.model_copy(
        update={
            "detail": report.detail.model_copy(
                update={
                    "summary": report.detail.summary.model_copy(update={"best": None}),
                    "verdict": None,
                    "families": (),
                    "progress": (),
                    "importance": (),
                    "front": None,
                    "ended_early": (),
                    "trials": (),
                }
            ),
            "leaderboard": report.leaderboard.model_copy(
                update={"tokens": None, "entries": (), "trade_offs": ()}
            ),
        }
    )
    page = Page(render_page(empty))
    assert any("there is no answer" in text for text in page.list("p"))
    assert describe_page(empty).charts == []
