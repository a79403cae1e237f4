"""Trials one after the other in the driver's own process: for notebooks, tests and debugging."""

from memtune.studies.executor import ExecutorRun
from memtune.studies.trial import Trial
from memtune.studies.trial_worker import TrialWorker


class InProcessExecutor:
    """Trains each trial to its end before it starts the next. Exceptions of a trial end the study."""

    def connect(self, cpus_per_trial: int, max_concurrent_trials: int) -> None:
        """Nothing to connect to."""

    def find_gpu_bytes(self) -> int | None:
        """Trials use the whole GPU of this process, so no share of one needs to be computed."""
        return None

    def run_trials(self, run: ExecutorRun) -> None:
        """Run the director's trials in order; a stop leaves the current one open with a checkpoint."""
        while not run.stop.is_set and (trial := run.director.take_next_trial()):
            _run_trial(run, trial)

    def close(self) -> None:
        """Nothing to release."""


def _run_trial(run: ExecutorRun, trial: Trial) -> None:
    """Run one trial until it ends, meets a fault of the environment, or `run.stop` is set.

    Raises StudyError when this driver lost the study or the study's storage was deleted.
    """
    number = trial.proposal.number
    worker = TrialWorker(run.make_assignment(trial))
    run.director.on_started(number)
    while not run.stop.is_set:
        run.director.check()
        report = worker.step(lambda: run.stop.is_set)
        continues = run.director.on_worker_report(number, report)
        if (fault := report.environment_fault) is not None:
            run.director.on_environment_fault(number, fault)
            return
        if report.is_finished or not continues:
            run.director.on_ended(number)
            return
