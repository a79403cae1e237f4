"""One run of Ray Tune over the trials of a director, by Tune's extension points.

Tune asks the searcher for trials, shows the stopper each report, and informs the callback about workers. The
three adapters call the director and hold no decisions of their own.

The clock of heartbeats advances by one second at most between two checks. A driver that was stopped for an
hour, or waited for its storage, therefore does not expire its workers.
"""

import gc
import logging
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from memtune.ray_backend import compatibility
from memtune.ray_backend.cluster_nodes import SlotPlanner
from memtune.ray_backend.node_watch import NodeWatch, watch_node
from memtune.ray_backend.trial_actor import StopNotice, TrialActor, request_resources
from memtune.search import StorageUnavailableError
from memtune.studies.executor import STOP_SECONDS, ExecutorRun
from memtune.studies.trial_worker import WorkerReport
from memtune.trial_state import StopReason, TrialEnd

FAILURE_HEADER_PATTERN = re.compile(r"^Failure # \d+ .*$", re.MULTILINE)
WORKER_DIED_MESSAGE = "the worker process died: it crashed, or was killed"
MAX_REASON_CHARACTERS = 300


def read_last_failure(path: str | None) -> str:
    """The last failure in an error file, on one line; without a file or a cause the worker has died."""
    if not path or not Path(path).exists():
        return WORKER_DIED_MESSAGE
    failure = FAILURE_HEADER_PATTERN.split(Path(path).read_text(encoding="utf-8", errors="replace"))[-1]
    if low := compatibility.LOW_MEMORY_PATTERN.search(failure):
        return f"its node ran low on memory and Ray ended the worker: {low[1].strip()}"
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    if not lines or compatibility.WORKER_DIED_TEXT in lines[-1]:
        return WORKER_DIED_MESSAGE
    return lines[-1][:MAX_REASON_CHARACTERS]


MAX_STEP_SECONDS = 1.0
"""Seconds by which the clock advances at most between two checks."""


class HeartbeatMonitor:
    """The heartbeats of one driver's trials, by number."""

    def __init__(self, timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A trial expires `timeout_seconds` after its last heartbeat."""
        self.timeout_seconds = timeout_seconds
        self._clock = clock
        self._last_check = clock()
        self._elapsed_seconds = 0.0
        self._last_heartbeats: dict[int, float] = {}
        self._max_tokens: dict[int, int] = {}

    def start(self, number: int) -> None:
        """A worker starts the trial, for the first time or again."""
        self._last_heartbeats[number] = self._elapsed_seconds

    def record_heartbeat(self, number: int, tokens: int) -> bool:
        """Record a report of the worker; return whether the trial has more tokens than ever before."""
        self._last_heartbeats[number] = self._elapsed_seconds
        most = self._max_tokens.get(number, 0)
        self._max_tokens[number] = max(tokens, most)
        return tokens > most

    def remove(self, number: int) -> None:
        """The trial ended, or lost its worker."""
        self._last_heartbeats.pop(number, None)

    def find_expired_trials(self) -> list[int]:
        """Advance the clock and return the expired trials. Call it more often than once a second."""
        now = self._clock()
        self._elapsed_seconds += min(now - self._last_check, MAX_STEP_SECONDS)
        self._last_check = now
        oldest = self._elapsed_seconds - self.timeout_seconds
        return [number for number, last in self._last_heartbeats.items() if last <= oldest]


MAX_RETRIES = 2
"""Consecutive failures of a trial that are retried; a failure after further progress counts as the first."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class RunHandle:
    """What the adapters call of a run; pickled as an empty object.

    Tune pickles its adapters for its own resume, which memtune never uses: a study resumes from its records.
    """

    run: ExecutorRun
    watch: NodeWatch
    """Notices that Ray has died on this node or on the head."""
    slots: SlotPlanner
    notice: StopNotice
    cut_off: set[int] = field(default_factory=set)
    """Numbers of the trials that a stop of the run has left open."""
    has_ended: bool = False
    """Whether the run's workers have ended, or been killed, after a stop."""

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        return object, ()


class DirectedSearcher(Searcher):
    """Asks the director for the next trial while the cluster has a slot for one."""

    def __init__(self, handle: RunHandle) -> None:
        super().__init__()
        self._handle = handle
        self._open_gpus: dict[str, float] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial's assignment, FINISHED, or None to be asked again later.

        None when no slot is free, the study database is unavailable, or a running trial may let another one
        continue or start again itself.
        After an outage over the limit, or a stop of the run, no further trials start, and the driver ends
        when the running ones have ended.
        """
        run, slots = self._handle.run, self._handle.slots
        if run.stop.is_set:
            return Searcher.FINISHED  # type: ignore[return-value]
        if not slots.has_slot(self._open_gpus.values()):
            return None
        try:
            trial = run.director.take_next_trial()
        except StorageUnavailableError as outage:
            return Searcher.FINISHED if outage.permanent else None  # type: ignore[return-value]
        if trial is None:
            return None if run.director.may_start_later else Searcher.FINISHED  # type: ignore[return-value]
        assignment = run.make_assignment(trial)
        self._open_gpus[trial_id] = assignment.gpus
        return {
            "number": assignment.number,
            "assignment": assignment.model_dump_json(),
            "stop_key": self._handle.notice.key,
            "avoided_nodes": slots.list_resting_nodes(),
        }

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Free the trial's slot; the callback handles how the trial ended."""
        self._open_gpus.pop(trial_id, None)

    def save(self, checkpoint_path: str) -> None:
        """Store nothing: a study resumes from its own records."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing."""


class DirectedStopper(tune.Stopper):
    """Forwards each report to the director, and ends the trials that the director ends, and the run.

    Tune asks its stopper about every report, and its scheduler only about those after which a worker would
    go on.
    """

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether the trial ends with this report. After a stop of the run it does, and stays open."""
        number, report = result["config"]["number"], WorkerReport.model_validate_json(result["report"])
        continues = self._handle.run.director.on_worker_report(number, report)
        if continues and not report.is_finished and self._handle.run.stop.is_set:
            self._handle.cut_off.add(number)
            return True
        return not continues

    def stop_all(self) -> bool:
        """Whether the run has ended."""
        return self._handle.has_ended


class ForgetfulScheduler(FIFOScheduler):
    """Starts trials in their order, and has Tune forget those that have ended, with which it would grow."""

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """The first trial that waits; Tune calls this in each of its steps."""
        compatibility.forget_ended_trials(tune_controller)
        return super().choose_trial_to_run(tune_controller)


class SilentProgress(TrialProgressCallback):
    """Prints nothing. Tune's own callback, which it adds where a run has none, keeps every trial."""

    def log_result(self, trial: Any, result: dict[str, Any], error: bool = False) -> None:
        """Neither print nor keep the result."""

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """Neither print nor keep the trial."""


class DirectedCallback(tune.Callback):
    """Forwards trial events to the director, kills workers whose heartbeat expired, and stops the run."""

    def __init__(self, handle: RunHandle) -> None:
        self._handle = handle
        self._monitor = HeartbeatMonitor(handle.run.resources.report_timeout)
        self._expired_numbers: set[int] = set()
        self._stop_deadline: float | None = None

    def _advance_stop(self, trials: list[Any]) -> None:
        """Tell the workers to end; end the run when they have, and kill the others after 5 s.

        Tune itself would wait ten seconds for each. What a killed worker trained since its last checkpoint is
        trained again.
        """
        if self._stop_deadline is None:
            self._handle.notice.publish()
            self._stop_deadline = time.monotonic() + STOP_SECONDS
        states = [trial.temporary_state for trial in trials if not trial.is_finished()]
        actors = [state.ray_actor for state in states if state.ray_actor]
        if actors and time.monotonic() < self._stop_deadline:
            return
        for actor in actors:
            ray.kill(actor)
        self._handle.has_ended = True

    def on_step_begin(self, iteration: int, trials: list[Any], **info: object) -> None:
        """Kill the workers whose heartbeat expired. Tune calls this about ten times a second.

        Raises StudyError when this driver lost the study or its storage was deleted.
        """
        self._handle.watch.check()
        self._handle.run.director.check()
        if self._handle.run.stop.is_set:
            self._advance_stop(trials)
        for expired in self._monitor.find_expired_trials():
            self._monitor.remove(expired)
            # The number of a resumed trial occurs several times; its last run is the live one.
            trial = [trial for trial in trials if _get_number(trial) == expired][-1]
            if actor := trial.temporary_state.ray_actor:
                log.warning("trial %d: %s; its worker is killed", expired, self._describe_expiry())
                self._expired_numbers.add(expired)
                ray.kill(actor)

    def _describe_expiry(self) -> str:
        return f"its worker sent no report for {self._monitor.timeout_seconds:,.0f} s"

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """A worker starts the trial."""
        number = _get_number(trial)
        self._monitor.start(number)
        self._expired_numbers.discard(number)
        self._handle.run.director.on_started(number)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: object
    ) -> None:
        """Progress resets the count of failures: a trial of days may lose many nodes."""
        if self._monitor.record_heartbeat(_get_number(trial), result["tokens"]):
            trial.run_metadata.num_failures = 0

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """The trial ended or was stopped, unless a stop of the run or a fault has left it open."""
        number = _get_number(trial)
        self._monitor.remove(number)
        if number in self._handle.cut_off:
            return
        if (fault := trial.last_result["environment_fault"]) is not None:
            self._handle.slots.rest(trial.last_result["node_id"])
            self._handle.run.director.on_environment_fault(number, fault)
        else:
            self._handle.run.director.on_ended(number)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """The trial failed more often than it is retried, unless its worker ended with Ray."""
        self._handle.watch.check()
        number = _get_number(trial)
        self._monitor.remove(number)
        if self._stop_deadline is not None:
            return
        expired = number in self._expired_numbers
        cause = self._describe_expiry() if expired else read_last_failure(trial.error_file)
        detail = f"failed {MAX_RETRIES + 1} times, last because {cause}"
        self._handle.run.director.on_crashed(number, TrialEnd(reason=StopReason.WORKER_LOST, detail=detail))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """The trial's worker failed; another one will run the trial."""
        self._monitor.remove(_get_number(trial))
        if self._stop_deadline is None:
            self._handle.run.director.on_worker_lost(_get_number(trial))


def _get_number(trial: Any) -> int:
    """The study's number of a Tune trial."""
    return int(trial.config["number"])


TUNE_SETTINGS = {
    # Lifts Tune's own limit on trials that wait for a node: the searcher limits the open trials.
    "TUNE_MAX_PENDING_TRIALS_PG": "10000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # A study resumes from its own records: Tune writes its state at the end alone.
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
}


def run_trials(run: ExecutorRun, folder: Path) -> None:
    """Run trials until the director has no more, or `run.stop` is set.

    Tune's own files go to `folder`. At a stop the workers have 5 s to store a checkpoint and end. As many
    trials are open at once as fit on the cluster after its autoscaler has added all the nodes it may, and all
    of them request their resources at once. Raises StudyError when no node can hold a trial, and
    ExecutorLostError when Ray has died on this node or on the head.
    """
    compatibility.forward_no_variables()
    with (
        compatibility.set_environment(TUNE_SETTINGS),
        tempfile.TemporaryDirectory(prefix="tune-", dir=folder) as scratch,
        _keep_signal_handler(),
        compatibility.raise_callback_errors(),
        StopNotice() as notice,
        watch_node() as watch,
    ):
        watch.check()
        slots = SlotPlanner(run.resources.cpus_per_trial, run.average_gpus, run.resources.max_concurrent)
        handle = RunHandle(run, watch, slots, notice)
        tune.Tuner(
            tune.with_resources(TrialActor, request_resources),
            tune_config=tune.TuneConfig(
                search_alg=DirectedSearcher(handle),
                scheduler=ForgetfulScheduler(),  # type: ignore[no-untyped-call]
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=lambda trial: str(trial.trial_id),
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                callbacks=[DirectedCallback(handle), SilentProgress()],
                stop=DirectedStopper(handle),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=MAX_RETRIES),
                verbose=0,
                progress_reporter=tune.CLIReporter(),  # a notebook's own one clears the cell's output
            ),
        ).fit()
    # Tune's objects call Ray when they are collected, which fails if Ray has been shut down before.
    gc.collect()
    if watch.loss is not None:
        raise watch.loss


def _keep_signal_handler() -> ExitStack:
    """At its end SIGUSR1 has the present handler again, which Tune replaces."""
    restoring = ExitStack()
    if threading.current_thread() is threading.main_thread():
        restoring.callback(signal.signal, signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
    return restoring
