"""A trial of a running study: what its driver, its budgets and its displays share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from memtune.search import Proposal
from memtune.training import Report, TrialConfig
from memtune.trial_state import TrialEnd, TrialState
from memtune.usage import Usage


@dataclass
class Trial:
    """A trial as its driver knows it."""

    proposal: Proposal
    config: TrialConfig
    state: TrialState = TrialState.WAITING
    reports: list[Report] = field(default_factory=list)
    end: TrialEnd | None = None
    usage: Usage = field(default_factory=Usage)
    """What the trial has used over all its workers, at the last report."""
    restored_tokens: int = 0
    """Tokens of the checkpoint from which its worker started, which this run of the study has not trained."""
    remarks: list[str] = field(default_factory=list)
    """Events that did not end the trial, such as a damaged checkpoint or a corpus that a node lacks."""

    @property
    def tokens(self) -> int:
        """Tokens seen at the last report."""
        return self.reports[-1].tokens if self.reports else 0

    @property
    def best_cost(self) -> float | None:
        """The best validation so far by the task's objective, as its cost: lower is better."""
        return min((r.cost for r in self.reports if r.cost is not None), default=None)


Watcher = Callable[[Trial], None]
