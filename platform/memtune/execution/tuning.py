"""Ray Tune under the director's word: three thin adapters, and the run that holds them together."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from memtune.execution.cluster import free_resources
from memtune.execution.director import Director, Trial
from memtune.execution.study import Resources
from memtune.execution.trial import Assignment, TrialActor
from memtune.training import Report

__all__ = ["concurrency", "run_trials"]

RETRIES = 2
Assign = Callable[[Trial], Assignment]


class DirectedSearcher(Searcher):  # type: ignore[misc]
    """Asks the director which trial comes next."""

    def __init__(self, director: Director, assign: Assign) -> None:
        """`assign` turns a trial into what its worker is told."""
        super().__init__()
        self._director, self._assign = director, assign

    def suggest(self, trial_id: str) -> dict[str, str] | str | None:
        """The next trial's assignment, or FINISHED."""
        trial = self._director.next()
        if trial is None:
            return str(Searcher.FINISHED)
        return {"assignment": self._assign(trial).model_dump_json()}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Heard through the callback."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a study resumes from its own records."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""


class DirectedScheduler(FIFOScheduler):  # type: ignore[misc]
    """Stops the trials the director stops."""

    def __init__(self, director: Director) -> None:
        """Trials start in the order in which they were asked for."""
        super().__init__()
        self._director = director

    def on_trial_result(self, tune_controller: object, trial: Any, result: dict[str, Any]) -> str:
        """Tell the director; go on or stop as it says."""
        goes_on = hear(self._director, trial, result)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)


class DirectedCallback(tune.Callback):  # type: ignore[misc]
    """Tells the director what happens to trials."""

    def __init__(self, director: Director) -> None:
        """One callback serves one run."""
        self._director = director

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """A worker took the trial up."""
        self._director.started(number(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: object
    ) -> None:
        """A report, the last one included, which the scheduler is not asked about."""
        hear(self._director, trial, result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """The trial ended or was stopped."""
        self._director.ended(number(trial))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """The trial failed more often than it may."""
        self._director.crashed(number(trial), last_line(trial.error_file))


def hear(director: Director, trial: Any, result: dict[str, Any]) -> bool:
    """Pass a Ray result on to the director; whether the trial goes on."""
    curve = [Report.model_validate(report) for report in result.get("reports", [])]
    return director.heard(number(trial), curve, result.get("failure"))


def number(trial: Any) -> int:
    """The study's number of a Ray trial."""
    return Assignment.model_validate_json(trial.config["assignment"]).number


def last_line(path: str | None) -> str:
    """The line of a worker's error report that says what happened."""
    if not path or not os.path.exists(path):
        return "the worker process died"
    with open(path, encoding="utf-8", errors="replace") as stream:
        lines = [line.strip() for line in stream if line.strip()]
    return f"crashed {RETRIES + 1} times, last with {lines[-1][:300]}" if lines else "the worker process died"


def concurrency(resources: Resources) -> int:
    """Trials at once: what the study says, else what fits the cluster's cores and GPUs, at least one."""
    if resources.max_concurrent:
        return resources.max_concurrent
    free = free_resources()
    fits = [free.get("CPU", 0) // resources.cpus_per_trial]
    if resources.gpus_per_trial:
        fits.append(free.get("GPU", 0) // resources.gpus_per_trial)
    return max(1, int(min(fits)))


def run_trials(director: Director, assign: Assign, resources: Resources, time_budget: float | None) -> None:
    """Run trials until the director has no more, the time (seconds) is up, or Ctrl-C is pressed."""
    at_once = concurrency(resources)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(at_once)
    request = {"cpu": resources.cpus_per_trial, "gpu": resources.gpus_per_trial}
    with tempfile.TemporaryDirectory(prefix="memtune-tune-") as scratch:
        tune.Tuner(
            tune.with_resources(TrialActor, request),
            tune_config=tune.TuneConfig(
                search_alg=DirectedSearcher(director, assign),
                scheduler=DirectedScheduler(director),
                num_samples=-1,
                max_concurrent_trials=at_once,
                reuse_actors=True,
                time_budget_s=time_budget,
                trial_name_creator=lambda trial: str(trial.trial_id),
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                callbacks=[DirectedCallback(director)],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        ).fit()
