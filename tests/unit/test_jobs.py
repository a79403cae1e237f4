"""The scripts in jobs/: those submitted to a cluster are commands; all take their mistakes as commands do."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from memtune.corpora import import_corpus
from memtune.execution.settings import Settings

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.name for path in (ROOT / "jobs").glob("*.py"))
JOBS = {"search.py": "search", "import_corpus.py": "corpus import", "evaluate.py": "evaluate"}


@pytest.mark.parametrize("script", JOBS)
def test_a_job_is_the_command(script: str) -> None:
    command = [sys.executable, f"jobs/{script}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"Example: memtune {JOBS[script]} " in " ".join(done.stdout.split())


def run(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> object:
    """The exit code of a script, run in this process."""
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "jobs" / script), run_name="__main__")
    return ended.value.code


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_without_its_arguments_ends_with_its_usage(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, script) == 2
    assert "Missing argument" in capsys.readouterr().err


def test_a_mistake_in_a_script_ends_with_1_and_one_message(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "ranking_questions.py", "tinny", "asked") == 1
    assert 'did you mean "tiny"' in capsys.readouterr().err


def test_questions_about_a_text_are_imported_by_seed_and_number(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = [[f"w{(7 * row + column) % 300}" for column in range(12)] for row in range(400)]
    import_corpus("text", dict.fromkeys(("train", "valid", "test"), text), settings.store)
    assert run(monkeypatch, "ranking_questions.py", "text", "asked", "1", "7") == 0
    assert "asked: 7 for valid, 7 for test" in capsys.readouterr().out
