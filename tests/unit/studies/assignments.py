"""Assignments of trials to workers, as the driver of a study makes them."""

from memtune.studies.assignment import Assignment
from memtune.studies.director import Trial
from memtune.studies.study import ResolvedStudy

__all__ = ["make_assignment"]


def make_assignment(resolved: ResolvedStudy, trial: Trial, gpus: float = 0.0) -> Assignment:
    """What a worker needs to run the trial."""
    return Assignment(
        number=trial.proposal.number,
        identity=trial.proposal.identity,
        config=trial.config,
        corpus=resolved.corpus.name,
        corpus_digest=resolved.corpus.digest,
        corpus_store=resolved.settings.corpus_store,
        checkpoint_root=resolved.checkpoint_root,
        gpus=gpus,
    )
