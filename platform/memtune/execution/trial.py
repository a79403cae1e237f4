"""One trial on a worker: the learner inside a Ray Tune actor, with its own checkpoints.

The actor reports the trial's whole curve each time, so that a report lost with a driver is heard again from
whoever continues the trial. It also reports between two milestones, each time it has stored a checkpoint, so
that the driver can tell a long way from a standstill. Ray's own checkpoints are not used: a trial is found
again by its identity.
"""

from typing import Any

from memtune.errors import MemtuneError, WorkerError
from memtune.imports import in_one_go

with in_one_go():  # the seconds before a worker's first trial are those of its imports
    from ray import tune

    from memtune.execution.assignment import Assignment, begin
    from memtune.execution.checkpoints import Checkpoints
    from memtune.training import AnyLearner

__all__ = ["TrialActor"]


class TrialActor(tune.Trainable):
    """Trains the assigned configuration, one checkpoint a step."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take an assignment (JSON under "assignment"); nothing is read before the first step."""
        self._assignment = Assignment.model_validate_json(config["assignment"])
        self._checkpoints = Checkpoints(self._assignment.checkpoints, self._assignment.identity)
        self._learner: AnyLearner | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment in the same process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train until the next report or checkpoint is due, whichever comes first.

        A fault that memtune names ends the trial with it as its reason; a worker at fault and anything else
        is raised, and Ray tries the trial again from its last checkpoint.
        """
        failure = None
        try:
            self._train()
        except WorkerError:
            raise
        except MemtuneError as error:
            failure = f"{type(error).__name__}: {error}"
        curve = self._learner.curve if self._learner else []
        finished = self._learner is not None and self._learner.finished
        return {
            "reports": [report.model_dump(mode="json") for report in curve],
            "tokens": self._learner.tokens if self._learner else 0,
            "remarks": self._checkpoints.remarks,
            "failure": failure,
            "done": finished or failure is not None,
        }

    def _train(self) -> None:
        if self._learner is None:
            self._learner = begin(self._assignment, self._checkpoints)
        if self._learner.finished:
            return
        if self._learner.train_for(self._assignment.checkpoint_seconds):
            self._learner.advance()
        self._checkpoints.save(self._learner)

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing for Ray to keep: `step` stores the trial's checkpoints."""
        return {}

    def load_checkpoint(self, checkpoint: object) -> None:
        """Nothing to load: the first step finds the trial's newest checkpoint."""
