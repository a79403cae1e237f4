"""A study that an external proposer or trainer drives, one call at a time.

`ask` starts a trial and `tell` reports a value, under the study's own sampler, budgets, checks, early
stopping and records. Every call is a driver of its own, so calls may come from any process. A call that is
killed is repeated: a value that is told again changes nothing, and `list_open_trials` shows a trial whose
answer was lost.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from types import NoneType
from typing import Any

from memtune.arguments import check_type
from memtune.errors import StudyError
from memtune.library import format_argument
from memtune.objective import Objective
from memtune.search import Lease, Proposals, StoredTrial, StudyReader
from memtune.search.database.study_database import find_max_tokens
from memtune.settings import Settings
from memtune.spaces import Scalar
from memtune.studies.budgets import BudgetMonitor
from memtune.studies.definition.begun_studies import (
    check_trials,
    describe_changes,
    explain_missing,
    find_begun,
)
from memtune.studies.definition.mixer_points import pin_named_point
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study import copy_as_toml
from memtune.studies.definition.study_loader import StudySource, open_study, resolve_study
from memtune.studies.director import Director, Records
from memtune.studies.trial_records import StudyRecords
from memtune.studies.trial_worker import WorkerReport
from memtune.tracking import Recorder, check_tracking
from memtune.training import DIVERGENCE_FACTOR, make_report
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.usage import Usage
from memtune.values import Value, flatten

log = logging.getLogger(__name__)

FLUSH_SECONDS = 60.0
PATIENCE_SECONDS = 30.0
"""How long a call waits for other calls, which take a second or two each."""
MAX_TOKENS = 10**14
"""The tokens of all trials together are a step of MLflow too, which has 63 bits: enough for 92,000 trials."""


class OpenTrial(Value):
    """A trial that waits for values."""

    number: int
    identity: str
    configuration: dict[str, Any]
    curve: dict[int, float]
    """The cost that was told, by tokens."""


class TellResult(Value):
    """A trial after it was told a value."""

    number: int
    state: TrialState
    end: TrialEnd | None
    """Why the study ended or paused the trial; None while it continues."""


def ask(
    study: StudySource, configuration: Mapping[str, Any] | None = None, *, settings: Settings | None = None
) -> OpenTrial:
    """Start the next trial of a study, which you train, or continue one that the study's rule had paused.

    The first call starts the study: a file, the name of a packaged study, a mapping or a `Study`.
    `configuration` holds fields of the trial, nested or dotted; the sampler draws the others. Raises
    StudyError when a budget is spent, when nothing is left to try, for a configuration that the study refuses
    or has tried, and while a driver runs the study; SpaceError for one outside of the space; and the errors
    of `open_study`, `resolve_study` and `open_ask_tell`.
    """
    expected = 'fields of the trial by name, such as {"model.layers": 2}'
    check_type("configuration", configuration, (Mapping, NoneType), expected)
    with open_ask_tell(_resolve(study, settings), starts=True) as session:
        return session.ask(configuration)


def list_open_trials(study: StudySource, *, settings: Settings | None = None) -> list[OpenTrial]:
    """The trials of a study that wait for values, by number, with the values that they have.

    Raises StudyError for a study that has not begun, and else as `ask`.
    """
    with open_ask_tell(_resolve(study, settings)) as session:
        return session.list_open()


def tell(
    study: StudySource,
    number: int,
    tokens: int = 0,
    cost: float | None = None,
    *,
    is_complete: bool = False,
    error: str | None = None,
    settings: Settings | None = None,
) -> TellResult:
    """Report a trial's validation cost after so many predicted tokens: nats per token, or the share of wrong
    answers.

    `is_complete` ends the trial, `error` says why it has failed, and a cost that is not finite that it has
    diverged. The result's `end` says whether the study has stopped or paused the trial. Raises StudyError for
    an unknown trial, for a new value or a failure of one that has ended, and for a cost that the study's
    objective cannot have, or that contradicts or precedes what was told; and else as `list_open_trials`.
    """
    check_type("number", number, Integral, "the number of a trial, such as 0")
    check_type("tokens", tokens, Integral, "a whole number, such as 400_000")
    check_type("cost", cost, (Real, NoneType), "a number, such as 3.2")
    if cost is None and not error:
        raise StudyError(f"trial {number} is told neither a cost nor an error")
    if is_complete and error:
        raise StudyError(f"trial {number} has ended or failed; leave out is_complete or error")
    with open_ask_tell(_resolve(study, settings)) as session:
        return session.tell(number, tokens, cost, is_complete=is_complete, error=error)


def _resolve(study: StudySource, settings: Settings | None) -> ResolvedStudy:
    return resolve_study(*open_study(study), Settings.resolve(settings))


@contextmanager
def open_ask_tell(resolved: ResolvedStudy, *, starts: bool = False) -> Iterator["AskTell"]:
    """A study for one call, with its lease and its records; one that `starts` may be new.

    Raises StudyError for a study that has not begun and does not start, for one of a version of memtune that
    named trials in another way, and when another driver has the study; StorageError when a storage does not
    answer.
    """
    resolved = find_begun(resolved)
    settings = resolved.settings
    stored = StudyReader(settings.study_database)
    if stored.has_begun(resolved.id):
        check_trials(resolved, stored.read(resolved.id).trials)
    elif not starts:
        file = resolved.file
        command = f"memtune study ask {format_argument(file)}" if file else "memtune.ask(study)"
        start = f"start it with: {command}"
        raise StudyError(explain_missing(resolved, start))
    elif changes := describe_changes(resolved):
        log.warning("study %s is new: %s", resolved.id, changes)
    with Lease(settings.study_database, resolved.id, patience_seconds=PATIENCE_SECONDS) as lease:
        check_tracking(settings.tracking_uri, resolved.corpus.name)
        resolved.store_terms()
        proposals = resolved.open_proposals(lease.check)
        with Recorder(settings.tracking_uri, resolved.corpus.name, guard=lease.check_for_records) as recorder:
            records = StudyRecords(recorder, resolved)
            records.resume(proposals.list_outcomes())
            yield AskTell(resolved, proposals, records)
            proposals.flush()
            recorder.flush(FLUSH_SECONDS)


class AskTell:
    """One call on a study."""

    def __init__(self, resolved: ResolvedStudy, proposals: Proposals, records: Records) -> None:
        self._resolved, self._proposals, self._records = resolved, proposals, records
        self._objective: Objective = resolved.task.objective
        study = resolved.study
        self._budget = BudgetMonitor(study.budget, study.prices, self._objective, proposals)
        self._budget.add_outcomes(proposals.list_outcomes())
        repeats = StudyReader(resolved.settings.study_database).list_repeats(resolved.id)
        self._budget.add_outcomes(repeats, are_repeats=True)

    def list_open(self) -> list[OpenTrial]:
        """The trials that wait for values, by number."""
        return [_describe(found) for found in self._proposals.list_unfinished()]

    def ask(self, configuration: Mapping[str, Any] | None = None) -> OpenTrial:
        """As the function `ask`."""
        if spent := self._budget.find_spent():
            raise StudyError(f"no trial starts: {spent}")
        max_trials, end = self._resolved.study.budget.trials, self._budget.find_search_end()
        refusal = f"no trial starts: {end or f'budget.trials = {max_trials} have started'}"
        if configuration is None:
            trial = self._make_director().take_next_trial()
            if trial is None:
                raise StudyError(f"{refusal}, or nothing new is left to try")
            proposal = trial.proposal
        elif end or len(self._proposals.list_outcomes()) >= max_trials:
            raise StudyError(refusal)
        else:
            point: dict[str, Scalar] = dict(flatten(copy_as_toml(configuration)))
            proposal = self._proposals.propose(
                pin_named_point(self._resolved.space, point, "the configuration")
            )
            self._make_director()
        self._budget.tick()
        return _describe(proposal)

    def tell(
        self,
        number: int,
        tokens: int,
        cost: float | None,
        *,
        is_complete: bool = False,
        error: str | None = None,
    ) -> TellResult:
        """As the function `tell`."""
        outcome = self._find_trial(number)
        if cost is not None:
            self._check_value(outcome, tokens, cost)
        if outcome.state is not TrialState.RUNNING:
            # A call may repeat what ended the trial: a value, or its failure.
            diverges = cost is not None and not math.isfinite(cost)
            is_told = outcome.has_diverged if diverges else cost is None or tokens in outcome.curve
            if not (outcome.state is TrialState.FAILED if error is not None else is_told):
                refused = "cannot fail" if diverges or error is not None else "takes no more values"
                is_paused = outcome.state is TrialState.PAUSED
                state = "is paused" if is_paused else f"has ended ({outcome.state.value})"
                later = " until a later ask returns it" if is_paused else ""
                raise StudyError(f"trial {number} {state} and {refused}{later}")
            return TellResult(number=number, state=outcome.state, end=outcome.end)
        curve = outcome.curve if cost is None else {**outcome.curve, tokens: cost}
        end = TrialEnd(reason=StopReason.BUDGET) if is_complete else None
        director = self._make_director()
        last, epoch = max(curve, default=0), self._resolved.task.epoch_tokens
        reports = tuple(
            make_report(at, value, self._objective, at / epoch, end if at == last else None)
            for at, value in curve.items()
        )
        report = WorkerReport(reports=reports, error=error, usage=Usage(tokens=last))
        continues = director.on_worker_report(number, report)
        if is_complete or error is not None or not continues:
            director.on_ended(number)
        self._budget.tick()
        told = self._find_trial(number)
        return TellResult(number=number, state=told.state, end=told.end)

    def _make_director(self) -> Director:
        """A director that has resumed every open trial."""
        resolved, rule = self._resolved, self._resolved.make_early_stopping_rule()
        # Open trials may report, also where the budget is lower than when they started.
        max_trials = max(resolved.study.budget.trials, len(self._proposals.list_outcomes()))
        director = Director(
            self._proposals,
            self._records,
            max_trials,
            rule,
            [self._budget.watch],
            resolved.study.compare,
            self._budget.has_room,
        )
        for _ in self._proposals.list_unfinished():
            trial = director.take_next_trial()
            assert trial is not None, "open trials are resumed first"
            director.on_started(trial.proposal.number)
        return director

    def _check_value(self, outcome: StoredTrial, tokens: int, cost: float) -> None:
        """Raise StudyError for a value without tokens, of another unit, or that contradicts those before.

        A value that is no number passes: the trial has diverged.
        """
        most = min(MAX_TOKENS, find_max_tokens(self._resolved.settings.study_database))
        if not 1 <= tokens <= most:
            raise StudyError(f"a value needs the tokens it was measured at, 1 to {most:,}, got {tokens:,}")
        diverged = math.log(DIVERGENCE_FACTOR * self._resolved.task.outcome_count)
        limit = min(self._objective.max_cost, diverged)
        if math.isfinite(cost) and (cost < 0 or cost > limit):
            raise StudyError(
                f"a value of this study is in {self._objective.cost_unit}, 0 to {limit:.3g}, got {cost:g}; "
                "tell nan for a training that diverged"
            )
        trial, last = f"trial {outcome.number}", max(outcome.curve, default=0)
        told = outcome.curve.get(tokens)
        if told is None and tokens < last:
            raise StudyError(f"{trial} has a value at {last:,} tokens; the next one has more, got {tokens:,}")
        # Of an accuracy the cost is 1 - (1 - cost), which may differ in the last digit.
        if told is not None and not math.isclose(told, cost, rel_tol=1e-9, abs_tol=1e-12):
            raise StudyError(
                f"{trial} has the value {told:g} at {tokens:,} tokens, got {cost:g}; tell a new value at its "
                "own tokens"
            )

    def _find_trial(self, number: int) -> StoredTrial:
        found = [trial for trial in self._proposals.list_outcomes() if trial.number == number]
        if not found:
            raise StudyError(f"study {self._resolved.id} has started no trial {number}")
        return found[0]


def _describe(trial: StoredTrial) -> OpenTrial:
    return OpenTrial(
        number=trial.number,
        identity=trial.identity,
        configuration=trial.configuration,
        curve=trial.curve,
    )
