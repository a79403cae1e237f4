"""Assignments as a driver makes them."""

from typing import Any

from memtune.search import StoredTrial
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.director import DirectedTrial
from memtune.studies.study_run import make_assignment
from memtune.studies.trial_worker import Assignment
from memtune.training import TrialConfig
from memtune.trial_state import TrialState

__all__ = ["assign_first_trial"]


def assign_first_trial(resolved: ResolvedStudy, configuration: dict[str, Any]) -> Assignment:
    """The assignment of a study's first trial, which has this configuration."""
    config = TrialConfig.model_validate(configuration)
    proposal = StoredTrial(0, config.identity(resolved.corpus.digest), configuration, TrialState.RUNNING)
    return make_assignment(resolved, DirectedTrial(proposal, config))
