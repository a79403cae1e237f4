"""One driver's run of a checked study: its trials and repeats on an executor, and the model to register."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace

from memtune.corpora import open_corpus
from memtune.errors import CorpusError, ExecutorLostError, StorageError, StudyError, TrackingError
from memtune.library import RESUMED_VARIABLE, format_resumption
from memtune.number_format import format_count
from memtune.plugins import list_sources
from memtune.search import Lease, Proposals, Rule, StorageUnavailableError, StoredTrial, StudyReader
from memtune.seed_statistics import SeedCosts, choose_compared, decide_seeds
from memtune.studies.budgets import BudgetMonitor, Reserve, StudyCost, compute_study_cost
from memtune.studies.checkpoint_store import list_trained, warn_of_lost_trials
from memtune.studies.definition.begun_studies import check_trials, explain_missing, is_untrained
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_terms import name_alternative
from memtune.studies.director import DirectedTrial, Director, Watcher
from memtune.studies.executor import Executor, ExecutorRun, StopRequest
from memtune.studies.result_cache import ResultCache
from memtune.studies.seed_repeats import (
    TrialNames,
    collect_seed_costs,
    list_repeatable,
    make_repeat_space,
    select_repeated,
)
from memtune.studies.trial_records import StudyRecords
from memtune.studies.trial_worker import Assignment
from memtune.tracking import Recorder, Registration, check_tracking
from memtune.trial_state import TrialState

FLUSH_SECONDS = 60.0


@dataclass(frozen=True)
class TrialPhase:
    """A series of trials that a display shows together: a study's trials, or its repeats."""

    title: str
    max_trials: int
    ideal_perplexity: float | None = None
    """The lowest validation perplexity that a model can reach."""
    searched_fields: Sequence[str] = ()
    """Dotted names of the fields that distinguish trials besides their key parameters."""
    names: TrialNames = field(default_factory=TrialNames)
    earlier: Sequence[StoredTrial] = ()
    """The trials of the phase that earlier drivers have started."""
    find_seconds_left: Callable[[], float | None] = lambda: None
    """Returns the seconds until an amount of the study's budget is spent; None without one."""
    trial_tokens: int = 0
    """The length of a trial that nothing stops; 0 where it is unknown."""
    noun: str = "trial"
    """What the phase counts: repeats are counted apart from the trials of the search."""
    has_repeats_after: bool = False
    """Whether repeats follow, whose time is not known yet."""


@dataclass(frozen=True)
class Conclusion:
    """What a study found: the decision of the registry, and the tests of the winner in words."""

    registration: Registration | None
    """None where no trial with a validation has a checkpoint."""
    statements: tuple[str, ...]


@dataclass(frozen=True)
class StudyHooks:
    """What the layers above plug into a study's run."""

    watches: Sequence[Callable[[TrialPhase], AbstractContextManager[Watcher]]]
    """Each opens what gets a trial after each of its states and reports: a display, or another tracker.

    After a resume the whole curves come again. An error of one ends the run, which a resume continues."""
    conclude: Callable[[ResolvedStudy, Recorder], Conclusion | None]
    """Chooses the best configuration of the stored trials and repeats, tests it, and offers it to the
    registry."""
    notify: Callable[[str], object]


@dataclass(frozen=True)
class StudyResult:
    """The outcome of a study's run."""

    resolved: ResolvedStudy
    outcomes: list[StoredTrial]
    repeats: list[StoredTrial] = field(default_factory=list)
    open_trials: list[DirectedTrial] = field(default_factory=list)
    """Trials that are left to a later driver, each at its last checkpoint."""
    spent_budget: str | None = None
    """The budget that ended the study before all its trials and repeats, in a sentence; None otherwise."""
    is_interrupted: bool = False
    """Whether a signal, or a fault of a node, ended the run."""
    stop_signal: int | None = None
    """The signal that ended the run; None where none did."""
    fault: str | None = None
    """What a node or a storage could not do, so that the study stopped; None where nothing stopped it."""
    executor_loss: ExecutorLostError | None = None
    """Why the run ended where what runs the trials has died; None otherwise."""
    conclusion: Conclusion | None = None
    """None for a study that was interrupted or in which no trial has a validation."""
    is_recorded: bool = True
    """Whether the tracking server has everything; if not, a resume sends the rest."""

    def describe_open(self) -> str:
        """Trials and repeats that are left to a later driver, with those that this driver did not start."""
        kinds = (("trial", self.outcomes), ("repeat", self.repeats))
        counts = ((sum(each.state.is_open for each in found), noun) for noun, found in kinds)
        return " and ".join(format_count(count, noun) for count, noun in counts if count) or "no trial"

    @property
    def registration(self) -> Registration | None:
        """The decision of the registry; None without a conclusion, and without a checkpoint."""
        return None if self.conclusion is None else self.conclusion.registration


def run_study(
    resolved: ResolvedStudy,
    executor: Executor,
    hooks: StudyHooks,
    *,
    resume: bool = False,
    reuse: bool = True,
) -> StudyResult:
    """Run a checked study, or resume it, and offer its best model to the registry.

    With `reuse`, configurations that another study has trained are not trained again, unless this study
    measures their speed. Raises StudyError when the study has begun and `resume` is not set, when another
    driver runs it, or when its corpus is replaced meanwhile.
    """
    database = resolved.settings.study_database
    with (
        Lease(database, resolved.id, notify=hooks.notify) as lease,
        _StudyRun(resolved, executor, hooks, lease) as run,
    ):
        return run.run(resume, reuse)


class _StudyRun(AbstractContextManager["_StudyRun"]):
    """The run of one study by one driver, which holds the study's lease."""

    def __init__(self, resolved: ResolvedStudy, executor: Executor, hooks: StudyHooks, lease: Lease) -> None:
        self._resolved, self._study = resolved, resolved.study
        self._executor, self._hooks, self._lease = executor, hooks, lease
        self._recorder: Recorder | None = None
        self._cache: ResultCache | None = None
        self._is_connected = False
        self._background = ThreadPoolExecutor(1, "memtune-background")
        self._gpu_bytes: int | None = None
        self._spent_budget: str | None = None
        self._fault: str | None = None
        self._executor_loss: ExecutorLostError | None = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Records are sent only while the study database says that this driver has the study.
        stall_seconds = 0.0 if isinstance(error, StorageUnavailableError) else FLUSH_SECONDS
        with ExitStack() as ending:
            ending.callback(lambda: self._recorder and self._recorder.close(stall_seconds))
            ending.enter_context(self._background)
            self._executor.close()

    def run(self, resume: bool, reuse: bool) -> StudyResult:
        proposals, recorder = self._open(resume, reuse)
        rule, repeats = self._resolved.make_early_stopping_rule(), list[StoredTrial]()
        open_trials = self._run_phase(self._study.question, self._resolved.max_trials, proposals, rule)
        is_stopped = self._must_end or self._fault
        if self._study.repeats.are_asked_for and not (is_stopped or (open_trials and not self._spent_budget)):
            # With a spent budget too: no repeat starts then, and the result names the budget.
            if self._spent_budget:
                self._hooks.notify(f"the search ends: {self._spent_budget}")
            self._budget.end_search()
            repeats, open_repeats = self._run_repeats(proposals)
            open_trials += open_repeats
        self._budget.tick()  # also the time of a driver whose budget is spent before a trial starts
        proposals.flush()
        return self._close(proposals, recorder, repeats, open_trials)

    def _open(self, resume: bool, reuse: bool) -> tuple[Proposals, Recorder]:
        """Open or create the study's records, and check whether this driver may continue it."""
        stored, recorder = StudyReader(self._resolved.settings.study_database), None
        if not stored.has_begun(self._resolved.id):
            # A job may have failed before its study began.
            if resume and not (RESUMED_VARIABLE in os.environ and is_untrained(self._resolved)):
                option = "resume=True" if self._resolved.file is None else "--resume"
                raise StudyError(explain_missing(self._resolved, f"start it without {option}"))
            recorder = self._start_recorder(connects=True)  # nothing is stored without a tracking store
            self._resolved.store_terms()  # before the study exists, so that whoever sees it finds them
        proposals = self._resolved.open_proposals(self._lease.check)
        # Those of earlier drivers count before this one has chosen what it repeats.
        self._earlier_repeats = stored.list_repeats(self._resolved.id)
        self._budget = self._open_budget(proposals)
        self._stop = StopRequest(self._budget.is_spent)
        self._check_progress(proposals, resume, reuse)
        if recorder is None:
            has_trials_left = len(proposals.list_finished()) < self._resolved.max_trials
            may_start = self._budget.has_room() and not self._budget.is_spent()
            recorder = self._start_recorder(connects=has_trials_left and may_start)
            self._resolved.store_terms()  # which may have changed since the last driver
        self._records = StudyRecords(recorder, self._resolved)
        # A reused trial has used nothing, so nothing measures its speed.
        if reuse and not self._study.measures_speed:
            self._cache = ResultCache(
                self._resolved.settings, self._resolved.id, self._resolved.corpus.digest
            )
        self._records.resume(proposals.list_outcomes())
        return proposals, recorder

    def _open_budget(self, proposals: Proposals) -> BudgetMonitor:
        """The study's budget, with what earlier drivers have spent."""
        reserve = Reserve(
            trial_tokens=self._resolved.trial_tokens,
            repeats=self._resolved.count_repeats()[1],
            cores=self._study.resources.cpus_per_trial,
            compared=self._study.compare,
        )
        terms, prices, objective = self._study.budget, self._study.prices, self._resolved.task.objective
        budget = BudgetMonitor(terms, prices, objective, proposals, reserve)
        budget.add_outcomes(proposals.list_outcomes())
        budget.add_outcomes(self._earlier_repeats, are_repeats=True)
        return budget

    def _close(
        self,
        proposals: Proposals,
        recorder: Recorder,
        repeats: list[StoredTrial],
        open_trials: list[DirectedTrial],
    ) -> StudyResult:
        """Record what the run cost, conclude a study that has ended, and wait for the tracking server."""
        disconnecting = self._background.submit(self._executor.close)  # while the registration runs
        is_interrupted = bool(self._must_end or self._fault or (open_trials and not self._spent_budget))
        result = StudyResult(
            self._resolved,
            proposals.list_outcomes(),
            repeats,
            open_trials,
            self._spent_budget,
            is_interrupted,
            self._stop.signal,
            self._fault,
            self._executor_loss,
        )
        self._records.record_cost(self._compute_cost(result, proposals.read_seconds_spent()))
        conclusion = None if result.is_interrupted else self._conclude(recorder)
        self._records.close(interrupted=bool(open_trials or proposals.list_unfinished()))
        disconnecting.result()
        if self._fault and not self._has_same_corpus():
            name = self._resolved.id
            raise StudyError(f"study {name} ends, its corpus was replaced meanwhile: {self._fault}")
        return replace(result, conclusion=conclusion, is_recorded=recorder.flush(FLUSH_SECONDS))

    def _has_same_corpus(self) -> bool:
        """Whether the corpus of this name is still the study's: on another one, a resume finds no study."""
        corpus, store = self._resolved.corpus, self._resolved.settings.corpus_store
        with suppress(CorpusError, StorageError, OSError):
            return open_corpus(corpus.name, store).digest == corpus.digest
        return True  # it is missing or cannot be read, and may be restored

    def _conclude(self, recorder: Recorder) -> Conclusion | None:
        try:
            return self._hooks.conclude(self._resolved, recorder)
        except (StorageError, TrackingError) as error:
            kind = TrackingError if isinstance(error, TrackingError) else StorageError
            raise kind(
                f"{error}; the trials are stored: to register the best model, run the study with --resume"
            ) from error

    @property
    def _must_end(self) -> bool:
        return self._stop.is_signalled or self._executor_loss is not None

    def _start_recorder(self, *, connects: bool) -> Recorder:
        """Open the recorder, and connect the executor at the same time: each takes seconds."""
        opening = self._background.submit(self._open_recorder)
        if connects:
            self._connect()
        return opening.result()

    def _open_recorder(self) -> Recorder:
        tracking_uri, corpus = self._resolved.settings.tracking_uri, self._resolved.corpus.name
        check_tracking(tracking_uri, corpus)
        self._recorder = Recorder(tracking_uri, corpus, guard=self._lease.check_for_records)
        return self._recorder

    def _compute_cost(self, result: StudyResult, seconds: float) -> StudyCost:
        return compute_study_cost(
            self._resolved.id,
            {"trials": result.outcomes, "repeats": result.repeats},  # MLflow has the totals alone
            seconds,
            self._study.prices,
            lambda outcome: outcome.config.count_tokens(lambda: self._resolved.task.epoch_tokens),
        )

    def _check_progress(self, proposals: Proposals, resume: bool, reuse: bool) -> None:
        """Report what earlier drivers did; raise StudyError without `resume` where trials are left."""
        trained = list_trained(self._resolved.checkpoint_root)
        outcomes, max_trials = proposals.list_outcomes(), self._resolved.max_trials
        stored = [*outcomes, *self._earlier_repeats]
        check_trials(self._resolved, stored)  # before anything starts
        warn_of_lost_trials(self._resolved.id, trained, [trial.identity for trial in stored])
        states = Counter(trial.state for trial in outcomes)
        open_trials, paused_trials = states[TrialState.RUNNING], states[TrialState.PAUSED]
        ended = f"{len(outcomes) - open_trials - paused_trials} of {format_count(max_trials, 'trial')} ended"
        ended += f", {paused_trials} paused" if paused_trials else ""
        if outcomes:
            self._hooks.notify(f"study {self._resolved.id}: {ended} before")
        if spent := self._budget.find_spent():
            self._hooks.notify(f"no trial starts: {spent}")
        elif not open_trials and (end := self._budget.find_search_end()):
            self._hooks.notify(f"no new trial starts: {end}")
        elif outcomes and not resume and (open_trials or len(outcomes) < max_trials):
            path = self._resolved.file
            options = () if reuse else ("--no-cache",)
            again = "resume=True" if path is None else format_resumption(path, options)
            raise StudyError(f"study {self._resolved.id} has begun: {ended}; continue with: {again}")

    def _run_repeats(self, proposals: Proposals) -> tuple[list[StoredTrial], list[DirectedTrial]]:
        """Run the best configurations under further seeds; return their outcomes and those left open."""
        within_limits = self._resolved.list_within_limits(proposals.list_outcomes())
        if self._study.repeats.until:
            return self._repeat_until_decided(proposals, within_limits)
        best = select_repeated(within_limits, self._study.repeats.best, self._study.compare)
        if not best:
            return [], []
        terms, first = self._study.repeats, self._study.seed
        seeds = range(first, first + terms.seeds)
        asked_for = make_repeat_space(best, seeds, terms.precision)
        space = make_repeat_space(best, seeds, terms.precision, self._earlier_repeats)
        repeats = self._resolved.open_proposals(self._lease.check, repeats=space)
        # Earlier drivers may have repeated configurations that are not among the best any more.
        self._records.names = TrialNames(proposals.list_outcomes())
        self._records.resend(repeats.list_outcomes())
        title = f"the best {len(best)} under {terms.seeds - 1} more seeds"
        if terms.precision and (asked_for.size() or 0) > len(best) * (terms.seeds - 1):
            title = f"the best {len(best)} in {terms.precision} under {terms.seeds} seeds"
        open_trials = self._run_phase(title, space.size() or 0, repeats)
        return repeats.list_outcomes(), open_trials

    def _repeat_until_decided(
        self, proposals: Proposals, within_limits: Sequence[StoredTrial]
    ) -> tuple[list[StoredTrial], list[DirectedTrial]]:
        """Run rounds of seeds of what may be best; return all repeats and those left open."""
        terms, first = self._study.repeats, self._study.seed
        all_seeds = range(first + 1, first + 1 + terms.max_seeds)
        repeatable = list_repeatable(within_limits, terms.precision)
        alternatives = {
            str(each.number): name_alternative(each.config, self._study.compare) for each in repeatable
        }
        self._records.names = TrialNames(proposals.list_outcomes())
        repeats, open_trials = list(self._earlier_repeats), list[DirectedTrial]()
        self._records.resend(repeats)
        known: dict[str, SeedCosts] | None = None
        while True:
            costs = choose_compared(collect_seed_costs(repeatable, repeats, all_seeds), alternatives)
            decision = decide_seeds(costs, terms.indifference, terms.max_seeds)
            # Without a new result no later round has one: a budget or a signal ended it, or it was refused.
            is_over = open_trials or self._must_end or costs == known
            if is_over or not decision.continued:
                return repeats, open_trials
            known = costs
            continued = [outcome for outcome in repeatable if str(outcome.number) in decision.continued]
            seeds = range(first, first + 1 + decision.seeds)
            space = make_repeat_space(continued, seeds, started=repeats)
            round_proposals = self._resolved.open_proposals(self._lease.check, repeats=space)
            title = f"{format_count(len(continued), 'configuration')} until decided, {decision.seeds} seeds"
            open_trials = self._run_phase(title, space.size() or 0, round_proposals)
            repeats = round_proposals.list_outcomes()

    def _run_phase(
        self, title: str, max_trials: int, proposals: Proposals, rule: Rule | None = None
    ) -> list[DirectedTrial]:
        """Run the search under a rule, or repeats without one; return the trials left open."""
        are_repeats = rule is None
        phase = TrialPhase(
            title,
            max_trials,
            (self._resolved.corpus.manifest.ideal or {}).get("valid"),
            (*self._resolved.searched_fields, "seed") if are_repeats else self._resolved.searched_fields,
            self._records.names,
            proposals.list_outcomes(),
            self._budget.find_seconds_left,
            self._resolved.trial_tokens,
            "repeat" if are_repeats else "trial",
            has_repeats_after=self._study.repeats.are_asked_for and not are_repeats,
        )
        count_spending = self._budget.watch_repeat if are_repeats else self._budget.watch
        with ExitStack() as stack:
            opened = [stack.enter_context(watch(phase)) for watch in self._hooks.watches]
            watchers = [self._budget.tick, count_spending, *opened]
            may_sample = (lambda: True) if are_repeats else self._may_sample
            director = Director(
                proposals, self._records, max_trials, rule, watchers, self._study.compare, may_sample
            )
            if not director.is_finished and not self._budget.is_spent():
                self._connect()
                with self._stop.catch_signals(self._hooks.notify):
                    self._run_until_lost(director)
                self._budget.tick()
            open_trials = director.interrupt()
            self._fault = director.fault
            if open_trials or not director.is_finished:
                self._spent_budget = self._budget.find_spent() or self._spent_budget
            return open_trials

    def _may_sample(self) -> bool:
        """Whether a budget has room for a new trial; the one that has none is named at the end."""
        self._spent_budget = self._budget.find_search_end()
        return self._spent_budget is None

    def _run_until_lost(self, director: Director) -> None:
        average_gpus = self._resolved.compute_average_gpus(self._gpu_bytes)
        run = ExecutorRun(director, self._make_assignment, self._study.resources, average_gpus, self._stop)
        try:
            self._executor.run_trials(run)
        except ExecutorLostError as loss:
            if not self._stop.is_signalled:  # a stop ends the run anyway
                self._executor_loss = loss.with_traceback(None)  # which would keep the run's objects alive

    def _connect(self) -> None:
        """Connect the executor, once for all phases."""
        if not self._is_connected:
            resources, repeats, trials = self._study.resources, self._study.repeats, self._resolved.max_trials
            most = None if repeats.until else max(trials, repeats.best * repeats.seeds)
            concurrent = min(filter(None, (resources.max_concurrent, most)), default=None)
            self._executor.connect(resources.cpus_per_trial, concurrent)
            self._is_connected = True
            self._gpu_bytes = self._find_gpu_bytes()

    def _find_gpu_bytes(self) -> int | None:
        """Memory of one GPU where trials are packed by memory: from the study, or from the executor."""
        resources = self._study.resources
        if resources.gpus_per_trial != "fit":
            return None
        gpu_bytes = resources.gpu_memory or self._executor.find_gpu_bytes()
        if gpu_bytes is None:
            raise StudyError(
                'gpus_per_trial = "fit" needs the memory of a GPU, and no node has a GPU now; set it under '
                '[resources], such as gpu_memory = "24GB"'
            )
        return gpu_bytes

    def _make_assignment(self, trial: DirectedTrial) -> Assignment:
        resolved = self._resolved
        if self._cache and (origin := self._cache.reuse(trial.config, resolved.checkpoint_root)):
            self._records.mark_reused(trial, origin)
        return make_assignment(resolved, trial, self._gpu_bytes)


def make_assignment(
    resolved: ResolvedStudy, trial: DirectedTrial, gpu_bytes: int | None = None
) -> Assignment:
    """What a worker needs to run a trial; `gpu_bytes` is the memory of one GPU where trials are packed."""
    return Assignment(
        number=trial.proposal.number,
        identity=trial.proposal.identity,
        config=trial.config,
        sources=list_sources(trial.config.model_dump(mode="json")),
        corpus=resolved.corpus.name,
        corpus_digest=resolved.corpus.digest,
        corpus_store=resolved.settings.corpus_store,
        checkpoint_root=resolved.checkpoint_root,
        device=resolved.limits.select_device(trial.config),
        threads=resolved.study.resources.cpus_per_trial,
        gpus=resolved.limits.compute_gpus(trial.config, gpu_bytes),
        checkpoint_seconds=resolved.study.resources.checkpoint_every,
    )
