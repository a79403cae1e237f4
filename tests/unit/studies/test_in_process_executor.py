"""Studies run without Ray: every trial in the driver's own process."""

import errno
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from memtune.api import run_search
from memtune.errors import CheckpointError, CorpusError, StorageError, StudyError
from memtune.search import Lease
from memtune.search.database import study_lease
from memtune.settings import Settings
from memtune.studies import director, trial_worker
from memtune.studies.checkpoint_store import Checkpoints
from memtune.studies.executor import InProcessExecutor
from memtune.studies.trial_worker import Assignment, TrialWorker, WorkerReport
from memtune.training import AnyTrainer
from memtune.trial_state import TrialState
from tests.assignments import assign_first_trial
from tests.unit.studies.study_files import resolve

LONG_REPORTS = {"training.report_every": 900, "resources.checkpoint_every": "0.0001s"}
"""One report per trial, and a checkpoint after every batch."""


def test_a_study_runs_to_its_end_in_this_process(study_file: Path, settings: Settings) -> None:
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    assert {outcome.state for outcome in result.outcomes} <= {TrialState.COMPLETE, TrialState.PAUSED}
    assert len(result.outcomes) == result.resolved.study.budget.trials
    assert result.registration is not None
    assert result.registration.champion is not None


def test_two_runs_of_a_study_give_the_same_curves(
    study_file: Path, settings: Settings, tmp_path: Path, empty_store: Path
) -> None:
    shutil.copyfile(empty_store, tmp_path / "again.db")
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


@pytest.fixture
def refuse_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets the next checkpoints fail for lack of permission; root may write everywhere."""

    def refuse(times: int) -> None:
        pending, save = [PermissionError(13, "Permission denied")] * times, Checkpoints.save

        def save_when_permitted(checkpoints: Checkpoints, trainer: AnyTrainer) -> None:
            if pending:
                raise StorageError("cannot write to a folder") from pending.pop()
            save(checkpoints, trainer)

        monkeypatch.setattr(Checkpoints, "save", save_when_permitted)
        monkeypatch.setattr(trial_worker, "FIRST_PAUSE_SECONDS", 0.0)

    return refuse


def test_a_folder_that_cannot_be_written_for_a_while_fails_no_trial(
    refuse_writes: Callable[[int], None], study_file: Path, settings: Settings
) -> None:
    refuse_writes(3)
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    assert {outcome.state for outcome in result.outcomes} <= {TrialState.COMPLETE, TrialState.PAUSED}
    assert len(result.outcomes) == result.resolved.study.budget.trials


def test_a_folder_that_cannot_be_written_leaves_the_trial_open(
    refuse_writes: Callable[[int], None],
    study_file: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse_writes(1000)
    monkeypatch.setattr(trial_worker, "MAX_WRITE_SECONDS", -1.0)
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    assert len(result.open_trials) == 1


def test_a_study_whose_trials_are_gone_names_their_database(study_file: Path, settings: Settings) -> None:
    run_search(study_file, settings=settings, executor=InProcessExecutor())
    lost = settings.model_copy(update={"study_database": f"{settings.study_database}.other"})
    with pytest.raises(StudyError, match=r"no trial of study \S+ of \S+ is in journal:\S+other; restore"):
        run_search(study_file, resume=True, settings=lost, executor=InProcessExecutor())


def test_a_fault_of_this_node_leaves_the_trial_open(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, store: str) -> None:
        raise CorpusError("the disk is gone")

    monkeypatch.setattr(trial_worker, "open_corpus", fail)
    result = run_search(study_file, settings=settings, executor=InProcessExecutor())
    (trial,) = result.open_trials
    assert any("the disk is gone" in remark for remark in trial.remarks)
    assert result.registration is None


class TestBetweenTwoReports:
    """A trial stores checkpoints without a report, and its study ends or loses its storage."""

    @pytest.fixture
    def tokens(self) -> list[int]:
        """The tokens of the trial after each step."""
        return []

    @pytest.fixture
    def run_until(
        self, study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, tokens: list[int]
    ) -> Callable[[Callable[[], object]], None]:
        """Run the study with an event after the first step of its first trial."""

        def run(event: Callable[[], object]) -> None:
            step = TrialWorker.step

            def step_and_fire(worker: TrialWorker, is_stopping: Callable[[], bool]) -> WorkerReport:
                report = step(worker, is_stopping)
                tokens.append(report.tokens)
                if len(tokens) == 1:
                    event()
                return report

            monkeypatch.setattr(trial_worker.TrialWorker, "step", step_and_fire)
            monkeypatch.setattr(director, "CHECK_INTERVAL_SECONDS", 0.0)
            run_search(study_file, LONG_REPORTS, settings=settings, executor=InProcessExecutor())

        return run

    def test_a_study_whose_storage_is_deleted_ends(
        self,
        run_until: Callable[[Callable[[], object]], None],
        settings: Settings,
        monkeypatch: pytest.MonkeyPatch,
        tokens: list[int],
    ) -> None:
        monkeypatch.setattr("memtune.search.database.study_database.MISSING_LIMIT_SECONDS", 0.0)
        with pytest.raises(StudyError, match="was deleted"):
            run_until(Path(settings.study_database.removeprefix("journal://")).unlink)
        assert tokens[-1] < 900

    def test_a_study_that_another_driver_took_over_ends(
        self,
        run_until: Callable[[Callable[[], object]], None],
        study_file: Path,
        settings: Settings,
        monkeypatch: pytest.MonkeyPatch,
        tokens: list[int],
    ) -> None:
        study = resolve(study_file, settings, **LONG_REPORTS)

        def take_over() -> None:
            with Lease(settings.study_database, study.id, timeout_seconds=0.0):
                monkeypatch.setattr(study_lease, "read_clock_seconds", lambda: float("inf"))

        with pytest.raises(StudyError, match="was taken over"):
            run_until(take_over)
        assert tokens[-1] < 900


def make_assignment(study_file: Path, settings: Settings) -> Assignment:
    """A trial of 900 tokens with a report after 300."""
    resolved = resolve(study_file, settings)
    return assign_first_trial(
        resolved,
        {"model": {"family": "lstm", "width": 4}, "training": {"tokens": 900, "report_every": 300}},
    )


def test_the_first_step_of_a_restored_trial_reports_and_does_not_train(
    study_file: Path, settings: Settings
) -> None:
    given = make_assignment(study_file, settings)
    before = TrialWorker(given).step()
    assert len(before.reports) == 1
    restored = TrialWorker(given)
    again, further = restored.step(), restored.step()
    assert (again.reports, again.tokens) == (before.reports, before.tokens)
    assert further.reports[0].tokens > again.tokens


def test_an_error_of_a_trial_finishes_its_worker(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise CheckpointError("every checkpoint is damaged")

    monkeypatch.setattr(Checkpoints, "restore", refuse)
    report = TrialWorker(make_assignment(study_file, settings)).step()
    assert report.error == "CheckpointError: every checkpoint is damaged"
    assert report.environment_fault is None
    assert report.is_finished


def test_a_limit_of_this_machine_that_a_worker_meets_anywhere_is_a_fault_of_the_environment(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Checkpoints, "restore", fail)
    report = TrialWorker(make_assignment(study_file, settings)).step()
    assert report.error is None
    assert report.environment_fault is not None
    assert "ulimit -n" in report.environment_fault


def test_training_that_could_not_be_stored_is_not_reported(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise StorageError("no space")

    monkeypatch.setattr(Checkpoints, "save", refuse)
    report = TrialWorker(make_assignment(study_file, settings)).step()
    assert (report.reports, report.tokens, report.is_finished) == ((), 0, True)


def test_a_restored_worker_names_the_tokens_that_it_did_not_train(
    study_file: Path, settings: Settings
) -> None:
    given = make_assignment(study_file, settings)
    first = TrialWorker(given).step()
    again = TrialWorker(given).step()
    assert (first.restored_tokens, again.restored_tokens) == (0, first.tokens)


def test_an_ended_study_runs_again_without_a_trial(study_file: Path, settings: Settings) -> None:
    terms = {"budget.trials": 1}
    first, again = (
        run_search(study_file, terms, settings=settings, executor=InProcessExecutor()) for _ in range(2)
    )
    assert again.outcomes == first.outcomes


def test_tokens_of_earlier_drivers_count(study_file: Path, settings: Settings) -> None:
    terms = {"budget.trials": 2, "budget.tokens": 900, "early_stopping.kind": "none"}
    cut = run_search(study_file, terms, settings=settings, executor=InProcessExecutor())
    again = run_search(study_file, terms, settings=settings, executor=InProcessExecutor(), resume=True)
    assert len(cut.outcomes) == len(again.outcomes) == 1


def test_a_stopping_worker_does_not_wait_for_the_permission_to_write(
    refuse_writes: Callable[[int], None], study_file: Path, settings: Settings
) -> None:
    refuse_writes(3)
    report = TrialWorker(make_assignment(study_file, settings)).step(lambda: True)
    assert report.environment_fault == f"on {socket.gethostname()}: cannot write to a folder"


@pytest.mark.parametrize(("seconds", "saves"), [(1e9, 1), (-1.0, 2)])
def test_a_long_training_is_saved_before_its_validation(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, seconds: float, saves: int
) -> None:
    saved: list[int] = []
    monkeypatch.setattr(trial_worker, "MAX_UNSAVED_SECONDS", seconds)
    monkeypatch.setattr(Checkpoints, "save", lambda checkpoints, trainer: saved.append(trainer.tokens))
    TrialWorker(make_assignment(study_file, settings)).step()
    assert len(saved) == saves


def test_a_trial_that_the_director_ends_takes_no_further_step(
    study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[WorkerReport] = []
    step = TrialWorker.step

    def count_steps(worker: TrialWorker, is_stopping: Callable[[], bool]) -> WorkerReport:
        steps.append(step(worker, is_stopping))
        return steps[-1]

    monkeypatch.setattr(TrialWorker, "step", count_steps)
    monkeypatch.setattr(director.Director, "on_worker_report", lambda *given: False)
    run_search(study_file, {"budget.trials": 1}, settings=settings, executor=InProcessExecutor())
    assert [report.is_finished for report in steps] == [False]
