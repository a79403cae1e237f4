"""Altered corpora raise MemtuneError or open; they never crash the process, hang or raise anything else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.store import TARGETS

pytestmark = pytest.mark.cluster

INPUTS = 250


def test_an_altered_corpus_is_refused_or_opened() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.store", "--inputs", str(INPUTS)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    for target in TARGETS:
        assert f"{target}: {INPUTS // len(TARGETS)} inputs" in done.stdout
