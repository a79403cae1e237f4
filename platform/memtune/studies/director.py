"""The decisions of a study: which trial runs next, which trials continue, and what is recorded where.

The director knows neither Ray nor the terminal. An executor calls it from one thread; watchers are called
after each change of a trial.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from memtune.search import Proposals, Rule, StoredTrial
from memtune.search.early_stopping import CONTINUE, Action, NoEarlyStopping
from memtune.spaces import FAMILY_FIELD
from memtune.studies.definition.study_terms import name_alternative
from memtune.studies.trial_worker import WorkerReport
from memtune.training import Report, TrialConfig, find_best_report
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.usage import Usage


@dataclass
class DirectedTrial:
    """A trial as its driver knows it."""

    proposal: StoredTrial
    """As it was stored when this driver took it."""
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
        """The best validation so far by the task's objective, as its cost: lower is better.

        A trial that diverged has that of its weights from before.
        """
        best = find_best_report(self.reports)
        return None if best is None else best.cost


Watcher = Callable[[DirectedTrial], None]


MAX_FAULTS = 3
"""Faults of the environment in a row, without further training, after which a trial stops its study."""
CHECK_INTERVAL_SECONDS = 10.0
"""Seconds between two reads of the study database while no trial reports."""


class Records(Protocol):
    """Where the director records trials."""

    def start(self, trial: DirectedTrial) -> None:
        """The trial is about to run, for the first time or again."""

    def report(self, trial: DirectedTrial, reports: Sequence[Report]) -> None:
        """The trial's curve has new points."""

    def remark(self, trial: DirectedTrial) -> None:
        """The trial has a new remark."""

    def finish(self, trial: DirectedTrial) -> None:
        """The trial ended, was paused or was interrupted; its state says which."""


class Director:
    """Keeps a study's proposals, early-stopping rule, records and watchers consistent."""

    def __init__(
        self,
        proposals: Proposals,
        records: Records,
        max_trials: int,
        rule: Rule | None = None,
        watchers: Sequence[Watcher] = (),
        compared: str = FAMILY_FIELD,
        may_sample: Callable[[], bool] = lambda: True,
    ) -> None:
        """Continue the study from its records: ended trials count, unfinished trials run first.

        `max_trials` limits the different configurations that are started in all; none is new unless
        `may_sample`. Without a `rule` every trial trains on its whole budget. `compared` is the field whose
        values are the study's alternatives.
        """
        self._proposals, self._records = proposals, records
        self._rule, self._watchers = rule or NoEarlyStopping(), watchers
        self._compared, self._may_sample = compared, may_sample
        self._trials: dict[int, DirectedTrial] = {}
        """The trials of this driver, until a worker is done with one that has ended."""
        known = proposals.list_outcomes()
        # A trial that completed with its first report, like counting models, passes no rung.
        self._rule.replay(
            replace(trial, alternative=name_alternative(trial.config, compared))
            for trial in known
            if not (trial.state is TrialState.COMPLETE and len(trial.curve) == 1 and not trial.has_diverged)
        )
        unfinished = [trial for trial in known if trial.state is TrialState.RUNNING]
        # A budget lowered since they started leaves the last of them open.
        self._unfinished_proposals = unfinished[: max(0, max_trials - len(known) + len(unfinished))]
        self._paused = {trial.number: trial for trial in known if trial.state is TrialState.PAUSED}
        self._pausing: set[int] = set()
        self._faults: dict[int, tuple[int, int]] = {}
        """Faults that a trial has met in a row, and the tokens that it had trained on at the last one."""
        self.fault: str | None = None
        """The fault of the environment because of which no trial starts any more."""
        self._remaining_trials = max_trials - len(known)
        self._exhausted = False
        self._last_check = time.monotonic()

    @property
    def trials(self) -> list[DirectedTrial]:
        """Trials started by this driver that have not ended, by number; paused ones are among them."""
        return [self._trials[number] for number in sorted(self._trials)]

    @property
    def is_finished(self) -> bool:
        """Whether every trial that may be started now has been started by some driver."""
        is_started = not self._unfinished_proposals and self._is_sampling_over
        return is_started and self._find_resumable() is None

    @property
    def may_start_later(self) -> bool:
        """Whether a trial may start later, although none can now: a paused one, or one that meets a fault."""
        return self.fault is None and bool(self._list_running_numbers())

    def take_next_trial(self) -> DirectedTrial | None:
        """The trial to start next: unfinished ones first, then paused ones, then new ones.

        None when the study has started all it may, unless `may_start_later`. Raises StorageUnavailableError
        when the study database does not answer now.
        """
        proposal = self._unfinished_proposals.pop(0) if self._unfinished_proposals else None
        # The rule is asked again when no proposal is left, because some rules wait for that.
        proposal = proposal or self._resume_paused() or self._ask_proposal() or self._resume_paused()
        if proposal is None:
            return None
        new = DirectedTrial(proposal, TrialConfig.model_validate(proposal.configuration))
        trial = self._trials.setdefault(proposal.number, new)
        trial.state, trial.end = TrialState.WAITING, None
        self._records.start(trial)
        return trial

    def _resume_paused(self) -> StoredTrial | None:
        number = self._find_resumable()
        if number is None:
            return None
        self._rule.resume(number)
        self._proposals.resume(number)
        return self._paused.pop(number)

    def _find_resumable(self) -> int | None:
        """The paused trial that continues next; None where its worker has not ended yet."""
        number = self._rule.choose_resumed(self._list_running_numbers(), self._is_sampling_over)
        return number if number in self._paused else None

    @property
    def _is_sampling_over(self) -> bool:
        return self._remaining_trials <= 0 or self._exhausted or not self._may_sample()

    def _ask_proposal(self) -> StoredTrial | None:
        if self._is_sampling_over:
            return None
        proposal = self._proposals.ask()
        self._remaining_trials -= 1
        self._exhausted = proposal is None
        return proposal

    def on_started(self, number: int) -> None:
        """A worker started the trial."""
        self._set_state(number, TrialState.RUNNING)

    def on_worker_lost(self, number: int) -> None:
        """The trial lost its worker and waits for another."""
        self._set_state(number, TrialState.WAITING)

    def on_worker_report(self, number: int, report: WorkerReport) -> bool:
        """Record what a trial's worker reports; return whether the trial should continue.

        An error ends the trial unless a report has ended it already. A fault of the environment changes
        nothing until `on_environment_fault`. Repeated reports change nothing, and reports beyond the trial's
        end are dropped: a worker may train further than the point at which the study stops its trial.
        """
        trial = self._trials[number]
        trial.restored_tokens = report.restored_tokens
        self._add_remarks(trial, report.remarks)
        # Before a report may end the trial.
        if report.usage is not None and trial.state is TrialState.RUNNING:
            trial.usage = report.usage
            self._proposals.store_usage(number, report.usage)
        new = self._process_reports(trial, report.reports)
        if report.error is not None:
            self._process_error(trial, report.error)
        if new:
            self._records.report(trial, new)
        if new or report.usage:
            self._notify_watchers(trial)
        return trial.state is TrialState.RUNNING and trial.end is None

    def check(self) -> None:
        """Raise StudyError when this driver lost the study or its storage was deleted.

        An executor calls this several times a second, or before each step of a trial; the storage is asked
        every ten seconds.
        """
        if time.monotonic() - self._last_check >= CHECK_INTERVAL_SECONDS:
            self._last_check = time.monotonic()
            self._proposals.check()

    def _process_reports(self, trial: DirectedTrial, curve: Sequence[Report]) -> list[Report]:
        """Process the new reports up to the trial's end; return those."""
        new: list[Report] = []
        for report in curve:
            if trial.state is TrialState.RUNNING and report.tokens > trial.tokens:
                new.append(report)
                trial.reports.append(report)
                trial.end = report.end or trial.end
                self._process_report(trial, report)
        return new

    def _add_remarks(self, trial: DirectedTrial, remarks: Sequence[str]) -> None:
        new = [remark for remark in remarks if remark not in trial.remarks]
        if new:
            trial.remarks += new
            self._records.remark(trial)
            self._notify_watchers(trial)

    def _process_report(self, trial: DirectedTrial, report: Report) -> None:
        if report.cost is None:
            return
        number, tokens, cost = trial.proposal.number, report.tokens, report.cost
        # A trial of one report passes no rung.
        decision = CONTINUE
        if not (report.is_finished and len(trial.reports) == 1):
            alternative = name_alternative(trial.config, self._compared)
            decision = self._rule.decide(number, alternative, tokens, cost)
        if decision.action is Action.CONTINUE or report.is_finished:
            self._proposals.report(number, tokens, cost)
            return
        trial.end = TrialEnd(reason=StopReason.EARLY_STOPPING, detail=decision.reason)
        if decision.action is Action.PAUSE:
            trial.state = TrialState.PAUSED
            self._pausing.add(number)
            self._proposals.pause(number, trial.end, tokens, cost)
        else:
            trial.state = TrialState.STOPPED
            self._proposals.stop(number, trial.end, tokens, cost)

    def _process_error(self, trial: DirectedTrial, error: str) -> None:
        """End the trial with the error; a trial that has ended already keeps its end, with a remark."""
        if trial.state in (TrialState.STOPPED, TrialState.PAUSED):
            self._add_remarks(trial, [f"after its end: {error}"])
            return
        trial.state = TrialState.FAILED
        trial.end = TrialEnd(reason=StopReason.ERROR, detail=error)

    def on_ended(self, number: int) -> None:
        """The trial's worker is done with it: store how it ended in the study database and the records."""
        trial = self._trials[number]
        if trial.state is TrialState.PAUSED:
            self._pausing.discard(number)
            self._paused[number] = trial.proposal
        else:
            del self._trials[number]
            self._faults.pop(number, None)
            self._rule.end(number)
        cost = trial.best_cost
        if trial.state is TrialState.FAILED or (trial.state is TrialState.RUNNING and cost is None):
            trial.state = TrialState.FAILED
            trial.end = trial.end or TrialEnd(
                reason=StopReason.NO_VALIDATION, detail="no validation was reached"
            )
            self._proposals.fail(number, trial.end)
        elif trial.state is TrialState.RUNNING:
            assert cost is not None
            trial.state = TrialState.COMPLETE
            self._proposals.complete(number, cost, trial.end)
        self._records.finish(trial)
        self._notify_watchers(trial)

    def on_crashed(self, number: int, end: TrialEnd) -> None:
        """The trial's worker failed permanently."""
        self._trials[number].end = end
        self._trials[number].state = TrialState.FAILED
        self.on_ended(number)

    def on_environment_fault(self, number: int, detail: str) -> None:
        """A node or a storage kept the trial's worker from its work: the trial starts again, before others.

        After MAX_FAULTS in a row without further training no other trial starts either: `fault` says why.
        """
        trial = self._trials[number]
        if not trial.state.is_open:  # it has ended already, and needs no worker any more
            self._add_remarks(trial, [f"after its end: {detail}"])
            self.on_ended(number)
            return
        tokens, (faults, tokens_before) = trial.usage.tokens, self._faults.get(number, (0, -1))
        faults = faults + 1 if tokens <= tokens_before else 1
        self._faults[number] = faults, tokens
        self._add_remarks(trial, [detail])
        self._set_state(number, TrialState.WAITING)
        if faults >= MAX_FAULTS:
            self.fault = detail
            self._remaining_trials, self._unfinished_proposals, self._paused = 0, [], {}
        elif self.fault is None:
            self._unfinished_proposals.insert(0, trial.proposal)

    def interrupt(self) -> list[DirectedTrial]:
        """Leave the open trials to a later driver; return them.

        A trial that has ended is recorded, although the end of its worker was not waited for.
        """
        for number, trial in list(self._trials.items()):
            if trial.state.has_ended or number in self._pausing:
                self.on_ended(number)
        interrupted = self._list_open_trials()
        for trial in interrupted:
            trial.state = TrialState.INTERRUPTED
            self._records.finish(trial)
            self._notify_watchers(trial)
        return interrupted

    def _list_running_numbers(self) -> list[int]:
        """Open trials, and those whose worker has not ended yet after their pause."""
        return [trial.proposal.number for trial in self._list_open_trials()] + sorted(self._pausing)

    def _list_open_trials(self) -> list[DirectedTrial]:
        return [trial for trial in self.trials if trial.state.is_open]

    def _set_state(self, number: int, state: TrialState) -> None:
        self._trials[number].state = state
        self._notify_watchers(self._trials[number])

    def _notify_watchers(self, trial: DirectedTrial) -> None:
        for watcher in self._watchers:
            watcher(trial)
