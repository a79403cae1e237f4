"""One run of Ray Tune over the trials of a director."""

import gc
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray import tune

from memtune.ray_backend import tune_adapters as adapters
from memtune.ray_backend.cluster_nodes import SlotPlanner
from memtune.ray_backend.compatibility import forward_no_variables, raise_callback_errors
from memtune.ray_backend.node_watch import watch_node
from memtune.ray_backend.trial_actor import StopNotice, TrialActor, request_resources
from memtune.studies.executor import ExecutorRun

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
    os.environ.update(TUNE_SETTINGS)
    forward_no_variables()
    with (
        tempfile.TemporaryDirectory(prefix="tune-", dir=folder) as scratch,
        _restore_signal_handler(),
        raise_callback_errors(),
        StopNotice() as notice,
        watch_node() as watch,
    ):
        watch.check()
        slots = SlotPlanner(run.resources.cpus_per_trial, run.average_gpus, run.resources.max_concurrent)
        handle = adapters.DirectorHandle(run.director, run.make_assignment, run.stop, watch)
        stopper = adapters.DirectedStopper(handle)
        monitor = adapters.HeartbeatMonitor(run.resources.report_timeout)
        callback = adapters.DirectedCallback(handle, slots, monitor, notice, stopper)
        tune.Tuner(
            tune.with_resources(TrialActor, request_resources),
            tune_config=tune.TuneConfig(
                search_alg=adapters.DirectedSearcher(handle, slots, notice.key),
                scheduler=adapters.ForgetfulScheduler(),  # type: ignore[no-untyped-call]
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=lambda trial: str(trial.trial_id),
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=scratch,
                callbacks=[callback, adapters.SilentProgress()],
                stop=stopper,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=adapters.MAX_RETRIES),
                verbose=0,
                progress_reporter=adapters.SilentReporter(),
            ),
        ).fit()
    # Tune's objects call Ray when they are collected, which fails if Ray has been shut down before.
    gc.collect()
    watch.raise_loss()


@contextmanager
def _restore_signal_handler() -> Iterator[None]:
    """Tune replaces the handler of SIGUSR1; restore the previous one after the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGUSR1)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, previous)
