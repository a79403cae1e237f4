"""A study on a probe names chance and counts examples wherever its answer is shown."""

import re

import pytest

from memtune.api import run_search
from memtune.reports.report_page.page import render_page
from memtune.reports.study_tables import (
    describe_spending,
    explain_verdict,
    make_cost_table,
    make_ended_table,
    make_progress_table,
)
from memtune.reports.trial_tables import make_alternatives_table
from memtune.results.registration import StudyAnswer
from memtune.results.study.study_report import StudyReport, make_study_report
from memtune.results.study.study_view import StudyView
from memtune.results.study_conclusion import describe_conclusion
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.presence import require
from tests.unit.reports.parsed_page import Page
from tests.unit.reports.test_trial_tables import render

CORPUS = "probe-parity-length-4-rows-6-evaluated-2"
STUDY = {
    "question": "Which width?",
    "name": "parity",
    "corpus": CORPUS,
    "compare": "model.width",
    "task": {"kind": "probe"},
    "spaces": ["lstm"],
    "model": {"width": {"choice": [2, 4]}, "layers": 1},
    "training": {"epochs": 1},
    "budget": {"trials": 2},
    "early_stopping": {"kind": "none"},
}


@pytest.fixture(scope="module")
def view(module_settings: Settings) -> StudyView:
    return run_search(STUDY, settings=module_settings, executor=InProcessExecutor()).view


@pytest.fixture(scope="module")
def report(view: StudyView) -> StudyReport:
    return make_study_report(view)


def test_a_study_draws_the_rows_of_a_probe_that_are_missing(view: StudyView) -> None:
    assert require(view.corpus).manifest.splits["train"].sentences == 6


def test_every_surface_names_chance(view: StudyView, report: StudyReport) -> None:
    answer = StudyAnswer(question="", answer=require(report.verdict).text)
    texts = [
        explain_verdict(report.detail),
        " ".join(Page(render_page(report)).list("p")),
        describe_conclusion(view, answer, (), None),
    ]
    for text in texts:
        assert re.search(r"(Chance is|Not above chance, which is) 50\.000 %", text)


def test_every_surface_counts_examples(view: StudyView, report: StudyReport) -> None:
    page = Page(render_page(report))
    texts = [
        describe_spending(report.detail.summary),
        *(
            render(table)
            for table in (
                make_alternatives_table(view, ""),
                make_progress_table(report.detail),
                make_ended_table(report.detail),
                make_cost_table(require(report.cost)),
            )
        ),
        describe_conclusion(view, StudyAnswer(question="", answer=""), (), None),
        " ".join(page.list("main")).partition("Where this comes from")[0],
    ]
    for text in texts:
        assert "examples" in text
        assert "tokens" not in text
