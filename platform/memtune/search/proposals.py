"""The interface to a study's trials: ask for a configuration, report values, end the trial.

One Optuna study holds all of it, so a driver that resumes a study finds in its storage the sampled
parameters, the configuration, the trial's identity, the curve and the reason of its end. The driver is the
study's only writer. While the storage is unavailable, an outage buffer keeps what trials report.

Of the proposals, the study's initial points come first. The next trials go to the alternatives of its
question in turn, such as the families of the space, so that the sampler knows each one before it chooses
among them. After 20 rejections in a row the sampler is not asked any more, and an untried point is taken at
random: of all points where the space is small, of a number of draws where it is large.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import optuna
from optuna.trial import TrialState as OptunaState

from memtune.errors import ConfigurationError, StudyError
from memtune.search import trial_store
from memtune.search.database.outage_buffer import OutageBuffer, StorageUnavailableError, convert_outage_errors
from memtune.search.database.study_database import open_study_database, redact_url
from memtune.search.samplers.joint_space import JointSpace
from memtune.search.samplers.observed_values import MultiObjective
from memtune.search.samplers.prior_trials import PriorTrials
from memtune.search.samplers.sampler import SamplerConfig, SamplerRequest
from memtune.search.trial_history import History
from memtune.search.trial_store import ListPoints, Sizes, StoredTrial, TrialStore
from memtune.spaces import FAMILY_FIELD, MeasureSize, RandomChooser, Scalar, Space
from memtune.trial_state import StopReason, TrialEnd, TrialState
from memtune.usage import Usage
from memtune.values import digest

MAX_CONSECUTIVE_REJECTIONS = 20
"""Rejections in a row after which the sampler is not asked any more."""
MIN_ALTERNATIVE_TRIALS = 2
"""Trials of each alternative before the sampler chooses among them."""
MAX_ALTERNATIVE_REJECTIONS = 5
"""Rejections of an alternative after which the sampler does not choose its points any more."""
MAX_ASKS_PER_CALL = 2 * MAX_CONSECUTIVE_REJECTIONS
MAX_CANDIDATE_POINTS = 4096
"""Points of a space among which an untried one is searched."""


@dataclass(frozen=True)
class Candidates:
    """The configurations of a space that a study may run, and what decides which of them is next.

    `identify` returns a configuration's identity. `get_refusal_reason` returns why a configuration must not
    start (too many parameters, too little memory), or None. Both may raise ConfigurationError.
    `compute_sizes` returns what a model takes where its trial has to store it.

    Initial points are tried first; the sampler draws the parameters that they leave out. Prior points are
    believed to be good, the best first. Both are listed for a study without trials alone. A grid is tried at
    random, or as it is ordered. The choices of the field `compared` are the alternatives, which are tried in
    turn first.
    """

    space: Space
    sampler: SamplerConfig
    identify: Callable[[dict[str, Any]], str]
    get_refusal_reason: Callable[[dict[str, Any]], str | None]
    measure_size: MeasureSize | None = None
    list_initial_points: ListPoints = tuple
    list_prior_points: ListPoints = tuple
    objectives: MultiObjective = field(default_factory=MultiObjective)
    is_grid_ordered: bool = False
    compared: str = FAMILY_FIELD
    compute_sizes: Callable[[dict[str, Any]], Sizes] = lambda configuration: {}
    complete: Callable[[dict[str, Any]], dict[str, Any]] = lambda configuration: configuration
    """Adds to a configuration what reading it later needs, and leaves out what changes nothing."""

    @cached_property
    def alternatives(self) -> Sequence[Mapping[str, Scalar]]:
        """The parameters that choose each alternative of the study's question."""
        return self.space.list_alternatives(self.compared)

    def sample(self, trial: Any) -> dict[str, Any]:
        """The configuration that a trial or a chooser draws."""
        return self.complete(self.space.sample(trial, self.measure_size))

    def has_tried_all(self, history: History) -> bool:
        """Whether every point of a finite space has been started."""
        size = self.space.size()
        return size is not None and len(history.number_by_identity) >= size

    def find_untried_point(
        self, history: History, seed: int, choice: Mapping[str, Scalar]
    ) -> dict[str, Scalar] | None:
        """The parameters of a point that may start and has not, drawn with `seed`; None without one.

        It has the parameters of `choice`.
        """
        if self.has_tried_all(history):
            return None
        random, size = Random(seed), self.space.size()
        if size is None or size > MAX_CANDIDATE_POINTS:
            choosers = (RandomChooser(random, choice) for _ in range(MAX_CANDIDATE_POINTS))
        else:
            points = [point for point in self.space.points() if choice.items() <= point.items()]
            choosers = (RandomChooser(random, point) for point in random.sample(points, len(points)))
        for chooser in choosers:
            try:
                configuration = self.sample(chooser)
                is_new = self.identify(configuration) not in history.number_by_identity
                if is_new and not self.get_refusal_reason(configuration):
                    return chooser.parameters
            except ConfigurationError:
                continue
        return None


class Proposals:
    """The trials of one study, found again under the same name in the same storage.

    The same sampler seed and the same order of calls give the same proposals, whether or not the study was
    closed in between. Methods that read raise StorageUnavailableError when the storage stays unavailable.
    """

    def __init__(
        self,
        storage_url: str,
        study_name: str,
        candidates: Candidates,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """`guard` is called before every write. It raises when this driver must not write any more."""
        storage, redacted_url = open_study_database(storage_url), redact_url(storage_url)
        self._buffer = OutageBuffer(redacted_url)
        with convert_outage_errors(redacted_url):
            self._store = TrialStore(storage, study_name, guard)
            self._store.recover_interrupted()
            self._plan(candidates)

    def _plan(self, candidates: Candidates) -> None:
        """Find what is tried first, and how the study's alternatives take turns."""
        self._candidates = candidates
        self._config = config = candidates.sampler
        alternatives = len(candidates.alternatives)
        self._startup_trials = max(config.startup_trials, MIN_ALTERNATIVE_TRIALS * alternatives)
        self._trials_per_alternative = self._startup_trials // max(alternatives, 1)
        self._untriable: set[int] = set()
        """The alternatives without a point that may start."""
        prior = self._store.keep_points(trial_store.PRIOR_POINTS_KEY, candidates.list_prior_points)
        initial = self._store.keep_points(trial_store.INITIAL_POINTS_KEY, candidates.list_initial_points)
        grid = list(candidates.space.points()) if config.tries_every_point else []
        if not candidates.is_grid_ordered:
            grid = Random(config.seed).sample(grid, len(grid))
        self._planned_points = [*initial, *grid]
        self._space = JointSpace(candidates.space)
        prior = prior if config.follows_prior(candidates.objectives.count) else []
        self._prior = PriorTrials(prior, self._space, len(self._planned_points), candidates.alternatives)
        self._is_exhausted = False
        self._cached_history: History | None = None
        asked = self._store.list_asked()
        self._issued_numbers = {trial.number for trial in asked if trial.state is OptunaState.RUNNING}

    def ask(self) -> StoredTrial | None:
        """The next trial to run, stored as running; None when the space is exhausted, or after 40 rejections.

        A sampled configuration that another trial of the study has is stored as a duplicate with the known
        result. A refused one is stored with the reason. Neither is returned, and neither counts. Raises
        StorageUnavailableError when the storage does not answer. A later call returns the proposal that this
        call would have returned.
        """
        return self._buffer.try_once(self._propose_next)

    def propose(self, parameters: Mapping[str, Scalar]) -> StoredTrial:
        """A trial with the given parameters, stored as running; the sampler draws those that are missing.

        Raises StudyError for a configuration that the study refuses or that one of its trials has.
        """
        return self._buffer.try_once(lambda: self._propose_given(parameters))

    def report(self, number: int, tokens: int, value: float) -> None:
        """Add a point to a running trial's curve; the first value at a number of tokens stays."""
        self._buffer.write(lambda: self._store.write_report(number, tokens, value))

    def store_usage(self, number: int, usage: Usage) -> None:
        """Store what a running trial has used so far."""
        stored = usage.model_dump(mode="json")
        self._buffer.write(lambda: self._store.write_usage(number, stored))

    def complete(self, number: int, value: float, end: TrialEnd | None = None) -> None:
        """End a trial with its final value; a value that is not finite is a failure."""
        if math.isfinite(value):
            self._end(number, OptunaState.COMPLETE, end, value=float(value))
        else:
            self.fail(number, TrialEnd(reason=StopReason.DIVERGED, detail=f"the objective is {value}"))

    def stop(self, number: int, end: TrialEnd, tokens: int | None = None, value: float | None = None) -> None:
        """Stop a trial before the end of its budget; the sampler learns from its curve.

        `tokens` and `value` are the report that decided it. They are stored together with the decision, so
        that a kill between two writes leaves no trial open that was to stop.
        """
        self._end(number, OptunaState.PRUNED, end, tokens=tokens, value=value)

    def pause(self, number: int, end: TrialEnd, tokens: int, value: float) -> None:
        """Pause a running trial at a report; the sampler learns from its curve so far."""
        stored = end.model_dump(mode="json")
        self._buffer.write(lambda: self._write_pause(number, stored, tokens, value))

    def resume(self, number: int) -> None:
        """Continue a paused trial."""
        self._buffer.write(lambda: self._store.write_resumption(number))

    def fail(self, number: int, end: TrialEnd) -> None:
        """End a failed trial; the sampler learns that it is the worst."""
        self._end(number, OptunaState.FAIL, end)

    def list_unfinished(self) -> list[StoredTrial]:
        """The running trials, which a later driver resumes."""
        return [outcome for outcome in self.list_outcomes() if outcome.state is TrialState.RUNNING]

    def list_outcomes(self) -> list[StoredTrial]:
        """Every trial that was started, running ones included: what a budget of trials counts."""
        return trial_store.read_started(self._buffer.retry_until(self._store.list_asked))

    def list_finished(self) -> list[StoredTrial]:
        """Every trial that has ended or is paused."""
        return [outcome for outcome in self.list_outcomes() if outcome.state.has_ended_or_paused]

    def check(self) -> None:
        """Raise StudyError when this driver lost the study or its storage was deleted.

        An executor calls this regularly, because trials may train for hours between two reports. An
        unavailable storage is not an error here.
        """
        with suppress(StorageUnavailableError):
            self._buffer.try_once(self._store.check)

    def flush(self) -> None:
        """Wait until the storage has every write; raises what the guard raises."""
        self._buffer.retry_until(self._store.guard)

    def read_seconds_spent(self) -> float:
        """Wall-clock seconds that all drivers have run this study, as last stored."""
        return self._buffer.retry_until(self._store.read_seconds_spent)

    def store_seconds_spent(self, seconds: float) -> None:
        """Store the seconds spent, those of earlier drivers included, unless the storage is unavailable."""
        with suppress(StorageUnavailableError):
            self._buffer.try_once(lambda: self._store.write_seconds_spent(seconds))

    def _end(self, number: int, state: OptunaState, end: TrialEnd | None, **fields: float | None) -> None:
        stored = {"state": state.name, "end": end and end.model_dump(mode="json"), **fields}
        self._buffer.write(lambda: self._write_end(number, stored))

    def _write_pause(self, number: int, end: dict[str, Any], tokens: int, value: float) -> None:
        self._store.write_pause(number, end, tokens, value)
        self._learn_from(number)

    def _write_end(self, number: int, ending: dict[str, Any]) -> None:
        self._store.write_end(number, ending)
        self._learn_from(number)

    def _learn_from(self, number: int) -> None:
        """Let the sampler learn from the trial's pause or end."""
        if self._cached_history is not None:
            self._cached_history.window.add(self._store.read_trial(number))

    def _propose_next(self) -> StoredTrial | None:
        self._store.guard()
        if self._cached_history is None:
            self._store.recover_interrupted()
            for trial in trial_store.select_started(self._store.list_asked()):
                # No caller has a stored proposal where the answer to its last write was lost.
                if trial.state is OptunaState.RUNNING and trial.number not in self._issued_numbers:
                    self._issued_numbers.add(trial.number)
                    return trial_store.read_outcome(trial)
        for _ in range(MAX_ASKS_PER_CALL):
            if self._is_exhausted:
                break
            if proposal := self._try_proposal():
                return proposal
        return None

    def _propose_given(self, parameters: Mapping[str, Scalar]) -> StoredTrial:
        self._store.guard()
        self._store.recover_interrupted()
        self._store.drop_enqueued()
        self._cached_history = None
        history = self._read_history()
        self._store.enqueue(parameters)
        history.given.add(history.asks)
        proposal = self._ask_sampler(history, self._list_led(history))
        if proposal is None:
            newest = trial_store.read_outcome(self._store.list_asked()[-1])
            raise StudyError(f"the configuration is not started: {newest.remark}")
        return proposal

    def _try_proposal(self) -> StoredTrial | None:
        """One sample of the space; None where it is rejected."""
        # The cache stays empty after an exception: the study then holds half a trial and is read again.
        history, self._cached_history = self._cached_history or self._read_history(), None
        led = self._list_led(history)
        point: Mapping[str, Scalar] | None
        if self._is_futile(history):
            seed = int(digest(self._config.seed, history.asks, "untried")[:8], 16)
            point = self._candidates.find_untried_point(history, seed, {})
        else:
            point = self._find_planned_point(history) or self._find_next_point(history, led)
        proposal, self._is_exhausted = None, point is None
        if point is not None:
            self._store.enqueue(point)
            proposal = self._ask_sampler(history, led)
        self._cached_history = history
        return proposal

    def _read_history(self) -> History:
        return History(self._store.list_asked(), self._candidates.alternatives)

    def _list_led(self, history: History) -> list[int]:
        """The asks that a prior leads, up to the next one."""
        return self._prior.list_led(history.asks + 1, history.list_learnt(), history.given)

    def _is_futile(self, history: History) -> bool:
        """Whether the sampler is not asked any more: it would not find a new configuration."""
        is_grid_done = self._config.tries_every_point and self._find_planned_point(history) is None
        is_rejected = history.consecutive_rejections >= MAX_CONSECUTIVE_REJECTIONS
        return is_grid_done or is_rejected or self._candidates.has_tried_all(history)

    def _find_planned_point(self, history: History) -> Mapping[str, Scalar] | None:
        """The initial point, or the point of the grid, for the next ask; None after the last one."""
        planned, turn = self._planned_points, history.asks - len(history.given)
        return planned[turn] if turn < len(planned) else None

    def _find_next_point(self, history: History, led: Sequence[int]) -> Mapping[str, Scalar]:
        """The parameters that the next ask takes: those of a prior, and of the alternative in turn."""
        is_led = history.asks in led
        believed = (is_led and self._prior.find_point(led, history.refused)) or {}
        if is_led and self._prior.chooses_alternative:
            return believed
        return {**self._find_point_in_turn(history, led), **believed}

    def _find_point_in_turn(self, history: History, led: Sequence[int]) -> Mapping[str, Scalar]:
        """The parameters that choose the alternative with the fewest trials; empty when each has enough.

        What a prior led and the others have turns of their own, so that they are compared on equal ones.
        Where the sampler's points were rejected, those of an untried point; without one the next alternative.
        """
        alternatives = self._candidates.alternatives
        is_led = history.asks in led
        starts = history.count_starts(led, is_led=is_led)
        others = history.count_starts(led, is_led=not is_led)
        is_shared = not self._prior.chooses_alternative
        for place in sorted(range(len(starts)), key=lambda each: (starts[each], is_shared * others[each])):
            choice = alternatives[place]
            if starts[place] >= self._trials_per_alternative or place in self._untriable:
                continue
            if history.rejections[place] < MAX_ALTERNATIVE_REJECTIONS:
                return choice
            # One seed for all points of an alternative, so that a resumed study finds the same ones.
            seed = int(digest(self._config.seed, place, "in turn")[:8], 16)
            if point := self._candidates.find_untried_point(history, seed, choice):
                return point
            self._untriable.add(place)
        return {}

    def _ask_sampler(self, history: History, led: Sequence[int]) -> StoredTrial | None:
        """The sampler's next trial, which is added to `history`; None where it is rejected."""
        led = led if history.asks in led else ()
        origin = trial_store.GIVEN if history.asks in history.given else trial_store.PRIOR if led else None
        request = SamplerRequest(
            int(digest(self._config.seed, history.asks)[:8], 16),
            self._config.options,
            history.asks,
            history.list_learnt(),
            led,
            self._space,
            self._startup_trials,
            self._candidates.objectives,
            self._prior,
        )
        trial = self._store.ask(self._config.make_sampler(request), origin)
        is_started = self._write_sample(trial, history)
        asked = self._store.read_trial(trial.number)
        history.add(asked)
        self._issued_numbers.add(trial.number)
        return trial_store.read_outcome(asked) if is_started else None

    def _write_sample(self, trial: optuna.Trial, history: History) -> bool:
        """Store what the sampler drew: a proposal, a duplicate, or a refusal; return whether it starts."""
        configuration: dict[str, Any] = {}
        try:
            configuration = self._candidates.sample(trial)
            identity = self._candidates.identify(configuration)
        except ConfigurationError as error:
            self._store.write_refusal(trial, configuration, str(error))
            return False
        if (original := history.number_by_identity.get(identity)) is not None:
            self._store.write_duplicate(trial, configuration, identity, self._store.read_trial(original))
            return False
        if reason := self._candidates.get_refusal_reason(configuration):
            self._store.write_refusal(trial, configuration, reason, identity)
            return False
        sizes = self._candidates.compute_sizes(configuration)
        self._store.write_proposal(trial, configuration, identity, sizes)
        return True
