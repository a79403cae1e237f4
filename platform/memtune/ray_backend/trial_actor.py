"""A trial's worker inside a Ray Tune actor, and the notice on which it stores a checkpoint and ends.

Ray's own checkpoints are not used: a worker finds the checkpoints of a trial by the trial's identity.

The notice to the workers of one run, on any node, is a key in the store of Ray's head. A worker is busy in a
training step, where Ray's calls to its actor wait, so a thread of the worker looks for the key.
"""

import os
import threading
import uuid
from contextlib import suppress
from typing import Any

from memtune.gc_pause import pause_gc

# Ray imports this module in every prestarted worker: the pause shortens the time to its first trial.
with pause_gc():
    from ray import get_runtime_context, tune
    from ray.tune.execution.placement_groups import PlacementGroupFactory

    from memtune.ray_backend.compatibility import NODE_TYPE_VARIABLE, call_key_store
    from memtune.studies.trial_worker import Assignment, TrialWorker

NODE_ID_LABEL = "ray.io/node-id"
"""Ray gives every node this label."""
POLL_SECONDS = 0.3
"""Seconds between two looks of a worker at the notice."""


class StopNotice:
    """The driver's side of the notice; a context manager that removes it."""

    def __init__(self) -> None:
        self.key = f"memtune-stop-{uuid.uuid4().hex}"

    def publish(self) -> None:
        """Ask the workers to end."""
        call_key_store("put", self.key, b"1")

    def __enter__(self) -> "StopNotice":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(Exception):  # the head of a cluster may be gone
            call_key_store("del", self.key)


def _wait_for_notice(key: str, found: threading.Event) -> None:
    """Set the event once the driver has published its notice."""
    while not found.wait(POLL_SECONDS):
        with suppress(Exception):  # a head that does not answer now
            if call_key_store("exists", key):
                found.set()


class TrialActor(tune.Trainable):
    """Trains the assigned configuration; one call of `step` stores one checkpoint."""

    _stop: threading.Event | None = None

    def setup(self, config: dict[str, Any]) -> None:
        """Take an assignment (JSON under "assignment"); nothing is read before the first step.

        "stop_key" names the notice that ends the run.
        """
        if self._stop is None:
            found = self._stop = threading.Event()
            name, key = "memtune-stop-watcher", config["stop_key"]
            threading.Thread(target=_wait_for_notice, name=name, args=(key, found), daemon=True).start()
        assignment = Assignment.model_validate_json(config["assignment"])
        self._worker = TrialWorker(assignment, os.environ.get(NODE_TYPE_VARIABLE, ""))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment in the same process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train until the next report or checkpoint is due, whichever comes first."""
        assert self._stop is not None, "setup comes first"
        report = self._worker.step(self._stop.is_set)
        return {
            "report": report.model_dump_json(),  # as text, because Tune flattens the results that it keeps
            "tokens": report.tokens,
            "environment_fault": report.environment_fault,
            "done": report.is_finished,
            "node_id": get_runtime_context().get_node_id(),
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Give Ray nothing to store: `step` stores the trial's checkpoints."""
        return {}

    def load_checkpoint(self, checkpoint: object) -> None:
        """Load nothing: the first step finds the trial's newest checkpoint."""


def request_resources(config: dict[str, Any]) -> PlacementGroupFactory:
    """The resources that a trial requests from Ray: its cores, and whole GPUs or a share of one.

    They are not on the nodes with the ids under "avoided_nodes". Ray's workers load this function with the
    actor's class, so it stands in a module that they have imported.
    """
    assignment = Assignment.model_validate_json(config["assignment"])
    gpus = {"GPU": assignment.gpus} if assignment.gpus else {}
    avoided = ",".join(config["avoided_nodes"])
    selector: dict[str, Any] = (
        {"bundle_label_selector": [{NODE_ID_LABEL: f"!in({avoided})"}]} if avoided else {}
    )
    return PlacementGroupFactory([{"CPU": assignment.threads, **gpus}], **selector)
