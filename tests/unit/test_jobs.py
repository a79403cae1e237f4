"""Each script in jobs/ runs one command of `memtune`, for `ray job submit`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = {"search.py": "search", "import_corpus.py": "corpus import", "evaluate.py": "evaluate"}


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"jobs/{script}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_script_is_a_command() -> None:
    assert {path.name for path in (ROOT / "jobs").glob("*.py")} == COMMANDS.keys()


@pytest.mark.parametrize("script", COMMANDS)
def test_a_script_shows_the_help_of_its_command(script: str) -> None:
    done = run(script, "--help")
    assert done.returncode == 0, done.stderr
    assert f"Example: memtune {COMMANDS[script]} " in " ".join(done.stdout.split())


@pytest.mark.parametrize("script", COMMANDS)
def test_a_script_without_arguments_is_wrong_usage(script: str) -> None:
    done = run(script)
    assert done.returncode == 2
    assert "Missing argument" in done.stderr
