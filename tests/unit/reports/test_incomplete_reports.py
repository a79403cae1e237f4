"""Reports of studies that lack a part: a second trial, a corpus, a runner-up."""

from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.reports.report_page.page import render_page
from memtune.results.study.study_report import report_study
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from tests.reported_study import RNN_TOML
from tests.unit.reports.parsed_page import Page

pytestmark = pytest.mark.usefixtures("without_report")


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
    assert "its text is not in the store any more" in " ".join(Page(render_page(lost)).list("td"))


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
