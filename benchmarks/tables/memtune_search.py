"""memtune's own search in a simulation: the real proposals, director and early-stopping rule, no records."""

from collections.abc import Sequence

from memtune.search import EarlyStopping, Proposals
from memtune.studies.director import DirectedTrial, Director
from memtune.training import Report

__all__ = ["NoRecords", "open_director"]


class NoRecords:
    """Records nothing."""

    def start(self, trial: DirectedTrial) -> None:
        """Nothing."""

    def report(self, trial: DirectedTrial, reports: Sequence[Report]) -> None:
        """Nothing."""

    def remark(self, trial: DirectedTrial) -> None:
        """Nothing."""

    def finish(self, trial: DirectedTrial) -> None:
        """Nothing."""


def open_director(
    proposals: Proposals, early_stopping: EarlyStopping, trial_tokens: int, max_trials: int
) -> Director:
    """The director of a study without a tracking store."""
    return Director(proposals, NoRecords(), max_trials, early_stopping.make_rule(trial_tokens))
