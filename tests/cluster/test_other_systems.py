"""What Linux has and other systems lack: a study without /proc, as on macOS."""

import subprocess
import sys
from pathlib import Path

import pytest

from memtune.settings import Settings
from memtune.trial_state import TrialState
from tests.cluster.drivers import read_outcomes
from tests.cluster.image_build import find_missing_rights

pytestmark = pytest.mark.cluster

RUN_STUDY = """
import sys
from pathlib import Path
assert not Path("/proc/self").exists()
import torch
from memtune.settings import Settings
from memtune.studies.definition.study_loader import load_study, resolve_study
from memtune.studies.executor import InProcessExecutor
from memtune.studies.study_run import StudyHooks, run_study
from memtune.training.memory_footprint import measure_resident_bytes, reset_peak_memory

study, home = map(Path, sys.argv[1:])
resolved = resolve_study(study, load_study(study, {"budget.trials": 2}), Settings.from_environment(home))
hooks = StudyHooks(
    watches=(),
    conclude=lambda *_: None,
    notify=print,
)
run_study(resolved, InProcessExecutor(), hooks)
reset_peak_memory(torch.device("cpu"))
assert measure_resident_bytes() > 0
"""


def test_a_study_trains_on_a_system_without_proc(study_file: Path, settings: Settings) -> None:
    if missing := find_missing_rights():
        pytest.skip(f"hiding /proc needs {missing}")
    study_file.write_text(study_file.read_text() + '\n[early_stopping]\nkind = "none"\n')
    hide = 'mount -t tmpfs hidden /proc; exec "$@"'
    program = [sys.executable, "-c", RUN_STUDY, str(study_file), str(settings.home)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", hide, "sh", *program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [outcome.state for outcome in read_outcomes(study_file, settings)] == [TrialState.COMPLETE] * 2
