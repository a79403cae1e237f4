"""Trials that share a GPU by their estimated memory."""

import pytest

from memtune.api import run_search
from memtune.trial_state import TrialState
from tests.gpu.cuda import needs_cuda

pytestmark = [*needs_cuda, pytest.mark.cluster]


def test_trials_packed_by_memory_all_complete(settings, study_file):
    result = run_search(
        study_file,
        {"resources.gpus_per_trial": "fit", "resources.cpus_per_trial": 1, "early_stopping.kind": "none"},
        settings=settings,
        progress=False,
    )
    assert {outcome.state for outcome in result.outcomes} == {TrialState.COMPLETE}
    assert all(outcome.usage.gpu_seconds > 0 for outcome in result.outcomes)
