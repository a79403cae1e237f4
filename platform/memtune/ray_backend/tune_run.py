"""One run of Ray Tune over the trials of a director."""

import gc
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from ray import tune

from memtune.ray_backend.cluster_nodes import SlotPlanner
from memtune.ray_backend.compatibility import forward_no_variables
from memtune.ray_backend.trial_actor import TrialActor
from memtune.ray_backend.tune_adapters import (
    MAX_RETRIES,
    DirectedCallback,
    DirectedScheduler,
    DirectedSearcher,
    DirectorHandle,
    request_resources,
)
from memtune.studies.executor import TrialRun
from memtune.studies.heartbeat_monitor import HeartbeatMonitor

__all__ = ["run_trials"]

MAX_PENDING_TRIALS = 10_000
"""Lifts Tune's own limit on trials that wait for a node: the searcher limits the open trials."""
STOPPING_MESSAGE = "stopping; press Ctrl-C again to end at once"


def run_trials(run: TrialRun, folder: Path) -> None:
    """Run trials until the director has no more, the time is spent, or Ctrl-C is pressed.

    Tune's own files go to `folder`. The first Ctrl-C stops the run and prints a message; the second raises
    KeyboardInterrupt. As many trials are open at once as fit on the cluster after its autoscaler has added
    all the nodes it may, and all of them request their resources at once. Raises StudyError when no node can
    hold a trial.
    """
    slots = SlotPlanner(run.resources.cpus_per_trial, run.average_gpus, run.resources.max_concurrent)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(MAX_PENDING_TRIALS)
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    handle = DirectorHandle(run.director, run.make_assignment)
    callback = DirectedCallback(handle, HeartbeatMonitor(run.resources.max_silence))

    def stop() -> None:
        run.notify(STOPPING_MESSAGE)
        callback.kill_workers()

    forward_no_variables()
    with tempfile.TemporaryDirectory(prefix="tune-", dir=folder) as scratch, _stop_on_interrupt(stop):
        tune.Tuner(
            tune.with_resources(TrialActor, request_resources),
            tune_config=tune.TuneConfig(
                search_alg=DirectedSearcher(handle, slots.has_slot),
                scheduler=DirectedScheduler(handle),
                num_samples=-1,
                reuse_actors=True,
                time_budget_s=run.remaining_seconds,
                trial_name_creator=lambda trial: str(trial.trial_id),
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                callbacks=[callback],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=MAX_RETRIES),
                verbose=0,
            ),
        ).fit()
    # Tune's objects call Ray when they are collected, which fails if Ray has been shut down before.
    gc.collect()


@contextmanager
def _stop_on_interrupt(on_stop: Callable[[], object]) -> Iterator[None]:
    """Stop Tune's run at the first Ctrl-C and call `on_stop` beside it; raise at the second.

    Tune stops in order at SIGINT or SIGUSR1; its SIGINT handler is disabled because it would swallow the
    second Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_stopping = False

    def handle_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        has_handler = signal.getsignal(signal.SIGUSR1) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        if is_stopping or not has_handler:
            raise KeyboardInterrupt
        is_stopping = True
        signal.raise_signal(signal.SIGUSR1)
        # In a thread, because the signal may have interrupted code that holds the console's lock.
        threading.Thread(target=on_stop, name="memtune-stopping").start()

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)}
    signal.signal(signal.SIGINT, handle_interrupt)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
