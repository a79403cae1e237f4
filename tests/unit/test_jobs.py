"""The scripts that are submitted to a cluster are the commands of the same name."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOBS = {"search.py": "search", "import_corpus.py": "corpus import", "evaluate.py": "evaluate"}


@pytest.mark.parametrize("script", JOBS)
def test_a_job_is_the_command(script: str) -> None:
    command = [sys.executable, f"jobs/{script}", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"Example: memtune {JOBS[script]} " in " ".join(done.stdout.split())
