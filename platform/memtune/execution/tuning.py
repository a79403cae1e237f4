"""Ray Tune under the director's word: three thin adapters, and the run that holds them together."""

import gc
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import ray
from ray import tune
from ray.tune.execution import class_cache
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from memtune.execution.assignment import Assignment
from memtune.execution.attendance import Attendance
from memtune.execution.director import Director, Trial
from memtune.execution.nodes import Room
from memtune.execution.reasons import last_failure
from memtune.execution.terms import Resources
from memtune.execution.trial import TrialActor
from memtune.search import StorageAwayError
from memtune.training import Report

__all__ = ["requested", "run_trials"]

RETRIES = 2
"""How often in a row a trial may fail without having come further than before, and is tried again."""
MOST_PENDING = 10_000
"""No bound of Tune's on trials that wait for a node: how many are open is the searcher's to say."""
STOPPING = "stopping; Ctrl-C again ends at once"
WORKER_AT_FAULT = "memtune.errors.WorkerError"
Assign = Callable[[Trial], Assignment]
More = Callable[[Collection[float]], bool]

log = logging.getLogger(__name__)

# For another framework's sake Tune gives its workers a variable of their own; Ray would start new ones for it
# and leave those it has in store, which have imported what a trial needs.
class_cache.DEFAULT_ENV_VARS.clear()


class Conductor:
    """The director and its assignments, for the adapters; left out of the state that Ray saves of itself."""

    def __init__(self, director: Director | None = None, assign: Assign | None = None) -> None:
        """Empty only where Ray reads back what it saved, which memtune never asks of it."""
        self._director, self._assign = director, assign

    def __reduce__(self) -> tuple[type["Conductor"], tuple[()]]:
        """Saved as an empty one."""
        return Conductor, ()

    @property
    def director(self) -> Director:
        """The study's director."""
        assert self._director is not None
        return self._director

    def next_assignment(self) -> Assignment | None:
        """What the next worker is told."""
        assert self._assign is not None
        trial = self.director.next()
        return None if trial is None else self._assign(trial)


class DirectedSearcher(Searcher):
    """Asks the director which trial comes next, as long as there is room for one."""

    def __init__(self, conductor: Conductor, another: More) -> None:
        """One searcher serves one run; `another` says if there is room beside what open trials take."""
        super().__init__()
        self._conductor, self._another = conductor, another
        self._open: dict[str, float] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial's assignment, or FINISHED; None for later, where there is no room for another.

        None too while the study's storage is away: asked again soon. When it was away for too long no more
        trials start, and the driver ends once those that run have.
        """
        if not self._another(self._open.values()):
            return None
        try:
            assignment = self._conductor.next_assignment()
        except StorageAwayError as away:
            return Searcher.FINISHED if away.for_good else None  # type: ignore[return-value]
        if assignment is None:
            return Searcher.FINISHED  # type: ignore[return-value]
        self._open[trial_id] = assignment.gpus
        return {"assignment": assignment.model_dump_json()}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """It makes room for another; how it went is heard through the callback."""
        self._open.pop(trial_id, None)

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a study resumes from its own records."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""


class DirectedScheduler(FIFOScheduler):
    """Stops the trials the director stops."""

    def __init__(self, conductor: Conductor) -> None:
        """Trials start in the order in which they were asked for."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._conductor = conductor

    def on_trial_result(self, tune_controller: object, trial: Any, result: dict[str, Any]) -> str:
        """Tell the director; go on or stop as it says."""
        goes_on = hear(self._conductor.director, trial, result)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)


class DirectedCallback(tune.Callback):
    """Tells the director what happens to trials, and ends workers that nothing is heard of."""

    def __init__(self, conductor: Conductor, attendance: Attendance) -> None:
        """One callback serves one run."""
        self._conductor, self._attendance = conductor, attendance
        self._silenced: set[int] = set()
        self._trials: list[Any] = []
        self._ending = False

    def end_workers(self) -> None:
        """At once: Tune would wait ten seconds for them to finish a step, and checkpoints are stored.

        That they failed, as it seems to Tune, is not held against their trials.
        """
        self._ending = True
        for trial in self._trials:
            if actor := trial.temporary_state.ray_actor:
                ray.kill(actor)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: object) -> None:
        """Some ten times a second: end the worker of each trial that was silent for too long."""
        self._trials = trials
        for silent in self._attendance.silent():
            self._attendance.left(silent)
            (trial,) = [trial for trial in trials if number(trial) == silent]
            if actor := trial.temporary_state.ray_actor:
                log.warning("trial %d: %s; its worker is ended", silent, self._silence())
                self._silenced.add(silent)
                ray.kill(actor)

    def _silence(self) -> str:
        return f"nothing was heard of its worker for {self._attendance.limit:,.0f} s"

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """A worker took the trial up."""
        self._attendance.began(number(trial))
        self._silenced.discard(number(trial))
        self._conductor.director.started(number(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: object
    ) -> None:
        """A report, the last one included, which the scheduler is not asked about.

        A trial that gets further has its failures forgiven: what takes days may see many nodes go.
        """
        if self._attendance.heard(number(trial), result.get("tokens", 0)):
            trial.run_metadata.num_failures = 0
        hear(self._conductor.director, trial, result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """The trial ended or was stopped."""
        self._attendance.left(number(trial))
        self._conductor.director.ended(number(trial))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """The trial failed more often than it may."""
        self._attendance.left(number(trial))
        if self._ending:
            return
        reason = self._silence() if number(trial) in self._silenced else last_failure(trial.error_file)
        if WORKER_AT_FAULT in reason:
            self._conductor.director.halt(number(trial), reason.partition(f"{WORKER_AT_FAULT}: ")[2])
        else:
            told = f"failed {RETRIES + 1} times, last because {reason}"
            self._conductor.director.crashed(number(trial), told)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """Its worker failed; another one will take the trial up."""
        self._attendance.left(number(trial))
        if not self._ending:
            self._conductor.director.waits(number(trial))


def hear(director: Director, trial: Any, result: dict[str, Any]) -> bool:
    """Pass a Ray result on to the director; whether the trial goes on."""
    curve = [Report.model_validate(report) for report in result.get("reports", [])]
    return director.heard(number(trial), curve, result.get("failure"), result.get("remarks", ()))


def number(trial: Any) -> int:
    """The study's number of a Ray trial."""
    return Assignment.model_validate_json(trial.config["assignment"]).number


def requested(config: dict[str, Any]) -> PlacementGroupFactory:
    """What a trial asks Ray for: its cores, and its own GPUs or share of one."""
    assignment = Assignment.model_validate_json(config["assignment"])
    gpus = {"GPU": assignment.gpus} if assignment.gpus else {}
    return PlacementGroupFactory([{"CPU": assignment.threads, **gpus}])


@contextmanager
def _interruptible(stopping: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C ends Tune's run by the other signal that Tune takes, and calls `stopping` beside it; once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        begun = signal.getsignal(signal.SIGUSR1) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        if pressed or not begun:
            raise KeyboardInterrupt
        pressed = True
        signal.raise_signal(signal.SIGUSR1)
        # In a thread, which waits for its turn: the signal may have come in the middle of a line.
        threading.Thread(target=stopping, name="memtune-stopping").start()

    others = {taken: signal.getsignal(taken) for taken in (signal.SIGINT, signal.SIGUSR1)}
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        for taken, handler in others.items():
            signal.signal(taken, handler)


def run_trials(
    director: Director,
    assign: Assign,
    resources: Resources,
    typical_gpus: float,
    time_budget: float | None,
    tell: Callable[[str], object],
) -> None:
    """Run trials until the director has no more, the time (seconds) is up, or Ctrl-C is pressed, which is
    said through `tell` at once; pressed again it is a KeyboardInterrupt.

    As many are open as the cluster holds when its autoscaler has added what it may, all of them asked for at
    once; `typical_gpus` is what one asks for on average. Raises StudyError when no node could hold one.
    """
    room = Room(resources.cpus_per_trial, typical_gpus, resources.max_concurrent)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(MOST_PENDING)
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    conductor = Conductor(director, assign)
    callback = DirectedCallback(conductor, Attendance(resources.max_silence))

    def stopping() -> None:
        tell(STOPPING)
        callback.end_workers()

    with tempfile.TemporaryDirectory(prefix="memtune-tune-") as scratch, _interruptible(stopping):
        tune.Tuner(
            tune.with_resources(TrialActor, requested),
            tune_config=tune.TuneConfig(
                search_alg=DirectedSearcher(conductor, room.another),
                scheduler=DirectedScheduler(conductor),
                num_samples=-1,
                reuse_actors=True,
                time_budget_s=time_budget,
                trial_name_creator=lambda trial: str(trial.trial_id),
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                callbacks=[callback],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                verbose=0,
            ),
        ).fit()
    gc.collect()  # what is left of Tune tells Ray of its end, which must not fall into that of Ray itself
