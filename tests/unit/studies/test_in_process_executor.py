"""Studies run without Ray: every trial in the driver's own process."""

from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.errors import CorpusError
from memtune.settings import Settings
from memtune.studies import assignment
from memtune.studies.in_process_executor import InProcessExecutor
from memtune.trial_state import StopReason, TrialState


def test_a_study_runs_to_its_end_in_this_process(study_file: Path, settings: Settings) -> None:
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    assert {outcome.state for outcome in result.outcomes} <= {TrialState.COMPLETE, TrialState.STOPPED}
    assert len(result.outcomes) == result.resolved.study.budget.trials
    assert result.promotion is not None
    assert result.promotion.champion is not None


def test_two_runs_of_a_study_give_the_same_curves(
    study_file: Path, settings: Settings, tmp_path: Path
) -> None:
    again = settings.model_copy(
        update={
            "studies_folder": str(tmp_path / "again"),
            "study_database": f"journal:///{tmp_path}/again.log",
            "tracking_uri": f"sqlite:///{tmp_path}/again.db",
        }
    )
    first, second = (
        run_search(study_file, settings=places, executor=InProcessExecutor()).outcomes
        for places in (settings, again)
    )
    assert [(outcome.identity, outcome.curve) for outcome in first] == [
        (outcome.identity, outcome.curve) for outcome in second
    ]


def test_a_fault_of_this_node_leaves_the_trial_open(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, store: str) -> None:
        raise CorpusError("the disk is gone")

    monkeypatch.setattr(assignment, "open_corpus", fail)
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    (trial,) = result.interrupted
    assert any("the disk is gone" in remark for remark in trial.remarks)
    assert result.promotion is None


def test_a_spent_time_budget_leaves_no_trial_open(study_file: Path, settings: Settings) -> None:
    result = run_search(study_file, {"budget.time": "1s"}, settings=settings, executor=InProcessExecutor())
    assert result.interrupted == []
    stopped = [outcome.end for outcome in result.outcomes if outcome.state is TrialState.STOPPED]
    assert {end.reason for end in stopped if end} <= {StopReason.TIME_BUDGET}
    assert all(not outcome.state.is_open for outcome in result.outcomes)
