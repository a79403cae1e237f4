"""A few kills of the loop that `python -m tests.cluster.kill_loop` runs hundreds of."""

import shutil
from pathlib import Path

import pytest

from tests.cluster.kill_loop import run_with_library

pytestmark = pytest.mark.cluster


def test_a_study_killed_at_any_write_and_resumed_stores_what_an_undisturbed_one_stores(
    tmp_path: Path,
) -> None:
    if shutil.which("cc") is None:
        pytest.skip("the kill loop needs a C compiler")
    ended = run_with_library(["--kills", "3"], tmp_path)
    assert ended.returncode == 0, ended.stdout
    assert "0 studies differ" in ended.stdout
