"""`memtune report`: the page, the figures and the values, and what cannot be reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memtune.cli.command_line import app
from memtune.reports.report_page import page
from memtune.results.study.study_report import StudyReport
from memtune.settings import Settings
from tests.reported_study import home, report

__all__ = ["home", "report"]


def test_the_command_writes_the_page_the_figures_and_the_values(
    home: Settings, report: StudyReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sections = page.list_sections(report)
    few = {name: sections[name] for name in ("seeds", "curves")}
    monkeypatch.setattr(page, "list_sections", lambda report: few)
    target, figures = tmp_path / "new" / "families.html", tmp_path / "figures"
    done = CliRunner().invoke(app, ["report", "families", "--out", str(target), "--figures", str(figures)])
    assert done.exit_code == 0, done.output
    assert target.read_text().startswith("<!doctype html>")
    names = {chart.name for chart in page.describe_page(report).charts}
    assert {path.name for path in figures.iterdir()} == {
        f"{name}.{end}" for name in names for end in ("svg", "png", "pdf")
    }
    assert (figures / "leaderboard.pdf").read_bytes().startswith(b"%PDF")
    printed = CliRunner().invoke(app, ["report", "families", "--json"])
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
    assert (page.FOLDER / "report_page.css").read_text(encoding="utf-8") in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], 'no study "nothing"'),
        (["--corpus", "nothing"], 'no study has run on corpus "nothing"'),
        (["families", "--out", "/proc/nothing/report.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_reported_is_named(
    home: Settings, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", *arguments])
    assert done.exit_code == 1
    assert message in str(done.exception)


@pytest.mark.parametrize("arguments", [[], ["families", "--corpus", "tiny"]])
def test_a_report_is_of_a_study_or_of_a_corpus(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["report", *arguments]).exit_code == 2
