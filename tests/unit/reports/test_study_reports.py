"""A study writes its report when it ends."""

import shutil
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.reports.report_page import page as page_module
from memtune.results.study.study_report import StudyReport
from memtune.settings import Settings
from memtune.studies.executor import InProcessExecutor
from memtune.tracking.mlflow_connection import connect
from tests.unit.reports.parsed_page import Page


def test_the_run_of_the_study_has_the_report(home: Settings, report: StudyReport, tmp_path: Path) -> None:
    client = connect(home.tracking_uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'study'")
    stored = client.download_artifacts(run.info.run_id, "report.html", str(tmp_path))
    assert report.verdict is not None
    assert report.verdict.headline in Page(Path(stored).read_text()).list("p")


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
        result = run_search(study_file, {"budget.trials": 1}, settings=settings, executor=InProcessExecutor())
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
