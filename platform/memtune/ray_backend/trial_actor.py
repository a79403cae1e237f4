"""A trial's worker inside a Ray Tune actor.

Ray's own checkpoints are not used: a worker finds the checkpoints of a trial by the trial's identity.
"""

import os
from typing import Any

from memtune.gc_pause import pause_gc

# Ray imports this module in every prestarted worker: the pause shortens the time to its first trial.
with pause_gc():
    from ray import get_runtime_context, tune
    from ray.tune.execution.placement_groups import PlacementGroupFactory

    from memtune.ray_backend.compatibility import NODE_TYPE_VARIABLE
    from memtune.ray_backend.stop_notice import StopWatcher
    from memtune.studies.assignment import Assignment
    from memtune.studies.trial_worker import TrialWorker

NODE_ID_LABEL = "ray.io/node-id"
"""Ray gives every node this label."""


class TrialActor(tune.Trainable):
    """Trains the assigned configuration; one call of `step` stores one checkpoint."""

    _stop: StopWatcher | None = None

    def setup(self, config: dict[str, Any]) -> None:
        """Take an assignment (JSON under "assignment"); nothing is read before the first step.

        "stop_key" names the notice that ends the run.
        """
        if self._stop is None:
            self._stop = StopWatcher(config["stop_key"])
        assignment = Assignment.model_validate_json(config["assignment"])
        self._worker = TrialWorker(assignment, os.environ.get(NODE_TYPE_VARIABLE, ""))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment in the same process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train until the next report or checkpoint is due, whichever comes first."""
        assert self._stop is not None, "setup comes first"
        report = self._worker.step(self._stop.is_stopping)
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
