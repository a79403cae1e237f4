"""What a study does with what it hears: which trial next, who goes on, what is recorded where.

The director knows neither Ray nor the terminal. Ray's callbacks call it, one at a time, from the driver's
thread; watchers are told after each change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from memtune.execution.wording import unit
from memtune.search import Outcome, Proposal, Proposals, SuccessiveHalving
from memtune.training import Report, TrialConfig

__all__ = ["Director", "Records", "Trial", "Watcher"]

State = Literal["waiting", "running", "done", "stopped", "failed", "interrupted"]


@dataclass
class Trial:
    """A trial as the driver knows it."""

    proposal: Proposal
    config: TrialConfig
    state: State = "waiting"
    reports: list[Report] = field(default_factory=list)
    reason: str | None = None
    remarks: list[str] = field(default_factory=list)
    """What happened on its way that did not end it."""

    @property
    def tokens(self) -> int:
        """Tokens seen at the last report."""
        return self.reports[-1].tokens if self.reports else 0

    @property
    def cost(self) -> float | None:
        """The best validation so far by the task's objective, as its cost: lower is better."""
        return min((r.cost for r in self.reports if r.cost is not None), default=None)


Watcher = Callable[[Trial], None]


class Records(Protocol):
    """Where the director writes what it hears."""

    def start(self, trial: Trial) -> None:
        """The trial is about to run, for the first time or again."""

    def report(self, trial: Trial, reports: Sequence[Report]) -> None:
        """New points of the trial's curve."""

    def remark(self, trial: Trial) -> None:
        """Something happened to the trial that did not end it."""

    def finish(self, trial: Trial) -> None:
        """The trial has ended or was interrupted; its state says which."""


class Director:
    """Keeps a study's proposals, halving rule, records and watchers in step."""

    def __init__(
        self,
        proposals: Proposals,
        records: Records,
        budget: int,
        rule: SuccessiveHalving | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        """Take up the study where its records stand: finished trials count, unfinished ones come first.

        `budget` is how many different configurations may be started in all.
        """
        self._proposals, self._records, self._rule, self._watchers = proposals, records, rule, watchers
        self._trials: dict[int, Trial] = {}
        known = proposals.outcomes()
        if rule is not None:
            rule.replay(outcome for outcome in known if not _is_one_report(outcome))
        self._waiting = proposals.unfinished()
        self._left = budget - len(known)
        self._exhausted = False

    @property
    def trials(self) -> list[Trial]:
        """Trials started by this driver, in order."""
        return [self._trials[number] for number in sorted(self._trials)]

    @property
    def finished(self) -> bool:
        """Whether there is nothing to run: all that may be started has been, and has ended."""
        return not self._waiting and self._left <= 0

    def next(self) -> Trial | None:
        """The trial to start next, or None when the study has started all it may.

        Raises StorageAwayError when the study's storage does not answer now.
        """
        proposal = self._waiting.pop(0) if self._waiting else self._ask()
        if proposal is None:
            return None
        trial = Trial(proposal, TrialConfig.model_validate(proposal.configuration))
        self._trials[proposal.number] = trial
        self._records.start(trial)
        return trial

    def _ask(self) -> Proposal | None:
        if self._left <= 0 or self._exhausted:
            return None
        proposal = self._proposals.ask()
        self._left -= 1
        self._exhausted = proposal is None
        return proposal

    def started(self, number: int) -> None:
        """A worker took the trial up."""
        self._change(number, "running")

    def waits(self, number: int) -> None:
        """The trial lost its worker and waits for another."""
        self._change(number, "waiting")

    def heard(
        self, number: int, curve: Sequence[Report], failure: str | None, remarks: Sequence[str] = ()
    ) -> bool:
        """Take a trial's curve so far; False when it should stop. Hearing it again changes nothing."""
        trial = self._trials[number]
        self._note(trial, remarks)
        new = [report for report in curve if report.tokens > trial.tokens]
        trial.reports += new
        trial.reason = failure or (curve[-1].reason if curve else None) or trial.reason
        for report in new:
            if trial.state == "running":
                self._judge(trial, report)
        if failure is not None:
            trial.state = "failed"
        if new:
            self._records.report(trial, new)
            self._tell(trial)
        return trial.state == "running"

    def _note(self, trial: Trial, remarks: Sequence[str]) -> None:
        new = [remark for remark in remarks if remark not in trial.remarks]
        if new:
            trial.remarks += new
            self._records.remark(trial)
            self._tell(trial)

    def _judge(self, trial: Trial, report: Report) -> None:
        if report.cost is None:
            trial.state = "failed"
            return
        number, tokens, cost = trial.proposal.number, report.tokens, report.cost
        alone = report.finished and len(trial.reports) == 1
        goes_on = self._rule is None or alone or self._rule.decide(number, tokens, cost)
        if goes_on or report.finished:
            self._proposals.report(number, tokens, cost)
            return
        trial.state = "stopped"
        trial.reason = f"successive halving at {tokens:,} {unit(trial.config.task)}"
        self._proposals.prune(number, trial.reason, tokens, cost)

    def ended(self, number: int) -> None:
        """The trial's worker is done with it: tell the sampler and the records how it went."""
        trial = self._trials[number]
        cost = trial.cost
        if trial.state == "failed" or (trial.state == "running" and cost is None):
            trial.state = "failed"
            self._proposals.fail(number, trial.reason or "no validation was reached")
        elif trial.state == "running":
            assert cost is not None
            trial.state = "done"
            self._proposals.complete(number, cost)
        self._records.finish(trial)
        self._tell(trial)

    def crashed(self, number: int, reason: str) -> None:
        """The trial failed for good outside of memtune's own errors."""
        self._trials[number].reason = reason
        self._trials[number].state = "failed"
        self.ended(number)

    def halt(self, number: int, reason: str) -> None:
        """No worker can take up the trial, which is not to blame: leave it open and start no other."""
        self._trials[number].reason = reason
        self._change(number, "waiting")
        self._left, self._waiting = 0, []

    def close(self, reason: str) -> None:
        """Stop every open trial for good, those too that wait to go on; nothing else is started."""
        self._left = 0
        while self.next():
            pass
        for trial in self._open():
            trial.state, trial.reason = "stopped", reason
            self._proposals.prune(trial.proposal.number, reason)
            self.ended(trial.proposal.number)

    def interrupt(self) -> list[Trial]:
        """Leave what is open to a later driver; returns those trials."""
        interrupted = self._open()
        for trial in interrupted:
            trial.state = "interrupted"
            self._records.finish(trial)
            self._tell(trial)
        return interrupted

    def _open(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.state in ("waiting", "running")]

    def _change(self, number: int, state: State) -> None:
        self._trials[number].state = state
        self._tell(self._trials[number])

    def _tell(self, trial: Trial) -> None:
        for watcher in self._watchers:
            watcher(trial)


def _is_one_report(outcome: Outcome) -> bool:
    """Whether a trial ended with its first report, as what counts does: it is at no rung on its way."""
    return outcome.state == "complete" and len(outcome.curve) == 1
