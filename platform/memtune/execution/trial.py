"""One trial on a worker: the learner inside a Ray Tune actor, with its own checkpoints.

The actor reports the trial's whole curve each time, so that a report lost with a driver is heard again from
whoever continues the trial. Ray's own checkpoints are not used: a trial is found again by its identity.
"""

from typing import Any

import torch
from ray import tune

from memtune.corpora import open_corpus
from memtune.errors import CorpusError, MemtuneError, TrialError
from memtune.execution.checkpoints import Checkpoints
from memtune.training import Learner, TrialConfig
from memtune.values import Value

__all__ = ["Assignment", "TrialActor"]


class Assignment(Value):
    """What a worker is told: the configuration, and where everything is."""

    number: int
    identity: str
    config: TrialConfig
    corpus: str
    corpus_digest: str
    store: str
    checkpoints: str
    device: str = "cpu"
    threads: int = 1


class TrialActor(tune.Trainable):  # type: ignore[misc]
    """Trains the assigned configuration, one report a step."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take an assignment (JSON under "assignment"); nothing is read before the first step."""
        self._assignment = Assignment.model_validate_json(config["assignment"])
        self._learner: Learner | None = None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next assignment in the same process."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Train to the next report and store a checkpoint.

        A fault that memtune names ends the trial with it as its reason; anything else is raised, and Ray
        tries the trial again from its last checkpoint.
        """
        failure = None
        try:
            if self._learner is None:
                self._learner = begin(self._assignment)
            if not self._learner.finished:
                self._learner.advance()
                Checkpoints(self._assignment.checkpoints, self._assignment.identity).save(self._learner)
        except MemtuneError as error:
            failure = f"{type(error).__name__}: {error}"
        curve = self._learner.curve if self._learner else []
        finished = self._learner is not None and self._learner.finished
        return {
            "reports": [report.model_dump(mode="json") for report in curve],
            "failure": failure,
            "done": finished or failure is not None,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing for Ray to keep: `step` stores the trial's checkpoints."""
        return {}

    def load_checkpoint(self, checkpoint: object) -> None:
        """Nothing to load: the first step finds the trial's newest checkpoint."""


def begin(assignment: Assignment) -> Learner:
    """The learner of an assignment: from its newest checkpoint, or new.

    Raises CorpusError when the store holds another content under the corpus's name, TrialError when a GPU was
    promised and none is visible.
    """
    if assignment.device == "cuda" and not torch.cuda.is_available():
        raise TrialError(
            "this trial was promised a GPU and its worker sees none; check the driver on that node, "
            "or run with --gpus-per-trial 0"
        )
    torch.set_num_threads(assignment.threads)
    corpus = open_corpus(assignment.corpus, assignment.store)
    if corpus.digest != assignment.corpus_digest:
        raise CorpusError(
            f'corpus "{assignment.corpus}" in {assignment.store} has digest {corpus.digest[:12]}, the study was '
            f"started on {assignment.corpus_digest[:12]}; start a new study for the new content"
        )
    checkpoints = Checkpoints(assignment.checkpoints, assignment.identity)
    found = checkpoints.restore(corpus, assignment.device)
    return found or Learner(assignment.config, corpus, assignment.device)
