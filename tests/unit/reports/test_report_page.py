"""The report of a study is one page that answers its question, needs nothing else, and takes no orders."""

import json
import re

import pytest

from memtune.reports.report_page.chart_parts import StudyChart
from memtune.reports.report_page.page import describe_page, digest_script, embed_json, render_page
from memtune.results.fingerprints import Fingerprint, ProbeTerms
from memtune.results.study import study_report
from memtune.results.study.study_report import StudyReport, report_corpus, report_study
from memtune.settings import Settings
from tests.presence import require
from tests.reported_study import HOSTILE_QUESTION
from tests.unit.reports.parsed_page import Page

MAX_BYTES = 3_000_000


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


def test_core_hours_are_said_to_be_of_all_trainings(page: Page, report: StudyReport) -> None:
    repeated = [entry for entry in report.leaderboard.entries if entry.is_repeated]
    assert repeated
    assert all(entry.trainings > entry.estimate.seeds for entry in repeated)
    assert any(text.startswith("Core hours and cost are of all trainings") for text in page.list("p"))


def test_equal_accuracies_have_a_margin_without_a_sign(report: StudyReport) -> None:
    """A t-test of several pairs may be sure where the interval of all of them has 0 within."""
    verdict = require(report.verdict)
    compared = verdict.comparisons[0].model_copy(update={"margin": -1e-14})
    page = Page(
        render_page(
            report.model_copy(
                update={
                    "detail": report.detail.model_copy(
                        update={"verdict": verdict.model_copy(update={"comparisons": (compared,) * 2})}
                    )
                }
            )
        )
    )
    texts = [*page.list("dd"), *page.list("td")]
    assert any(text.startswith("0.0 %") for text in texts)
    assert not any("-0.0" in text for text in texts)
    assert any("it may have 0 within" in text for text in page.list("p"))


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


def test_every_chart_has_a_place_and_every_place_a_chart(
    page: Page, charts: dict[str, StudyChart], html: str
) -> None:
    places = [attrs["data-chart"] for _, attrs in page.elements if "data-chart" in attrs]
    embedded = json.loads(re.findall(r'id="charts">(.*?)</script>', html, re.DOTALL)[0])["charts"]
    assert places == list(embedded) == list(charts)
    expected = {
        "leaderboard",
        "learning_curves",
        "best_so_far_by_tokens",
        "parallel_coordinates",
        "importance",
    }
    assert expected <= charts.keys()


def test_charts_follow_the_schema_of_vega_lite(charts: dict[str, StudyChart]) -> None:
    for chart in charts.values():
        assert "vega-lite" in chart.chart.to_dict(validate=True)["$schema"]


def test_links_within_the_page_have_a_target(page: Page) -> None:
    targets = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    links = {(attrs["href"] or "")[1:] for tag, attrs in page.elements if tag == "a"}
    assert links <= targets
    identifiers = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))


def test_the_page_is_small(html: str) -> None:
    assert len(html.encode()) < MAX_BYTES


def test_values_that_are_no_json_become_null_and_signs_of_markup_are_escaped() -> None:
    text = str(embed_json({"a": float("inf"), "b": [float("nan"), "</script>&\u2028"]}))
    assert json.loads(text) == {"a": None, "b": [None, "</script>&\u2028"]}
    assert not set("<>&\u2028") & set(text)


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
    longer = found[0].model_copy(update={"terms": ProbeTerms(epochs=20.0)})
    other = probed.model_copy(update={"fingerprint": longer})
    shared = report.model_copy(update={"probed": (probed, other, probed)})
    assert shared.probed_alike == [[probed, probed], [other]], "a table for those that compare"


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
    assert "There is no answer: no trial has a result yet." in page.list("p")
    assert describe_page(empty).charts == []
