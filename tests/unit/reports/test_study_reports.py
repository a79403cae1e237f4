"""A study writes its report when it ends, whatever it has found."""

import shutil
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.reports.report_page import page as page_module
from memtune.reports.report_page.page import render_page
from memtune.results.study.study_report import StudyReport, report_study
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking.mlflow_connection import connect
from tests.reported_study import RNN_TOML
from tests.unit.reports.parsed_page import Page


def test_the_run_of_the_study_has_the_report(home: Settings, report: StudyReport, tmp_path: Path) -> None:
    client = connect(home.tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'study'")
    stored = client.download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert report.verdict is not None
    assert report.verdict.headline in Page(Path(stored).read_text()).list("p")


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
