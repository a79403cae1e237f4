"""Which trial runs next: ask the sampler, reject duplicates and refusals, draw untried points.

The study's initial points come first. The next trials go to the alternatives of its question in turn, such as
the families of the space, so that the sampler knows each one before it chooses among them. After 20
rejections in a row the proposer stops asking the sampler and takes an untried point at random: of all points
where the space is small, of a number of draws where it is large.

A long study has thousands of trials, and a proposal does not read them all again: a summary of them is in
memory, and a sampler learns from a bounded part of them.
"""

import math
from bisect import insort
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import optuna
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from memtune.errors import ConfigurationError, StudyError
from memtune.search import trial_store
from memtune.search.samplers.joint_space import JointSpace
from memtune.search.samplers.observed_values import MultiObjective
from memtune.search.samplers.prior_trials import PriorTrials
from memtune.search.samplers.sampler import SamplerConfig, SamplerRequest
from memtune.search.stored_trials import Sizes, StoredTrial
from memtune.search.trial_store import ListPoints, TrialStore
from memtune.spaces import FAMILY_FIELD, MeasureSize, PinnedChooser, RandomChooser, Scalar, Space
from memtune.values import digest

MAX_BEST_TRIALS = 100
"""Four times the trials that TPE models as good, which are 25 at most."""
MAX_NEWEST_TRIALS = 300
MAX_RUNNING_TRIALS = 100

Rank = tuple[int, float, float, int]


class History:
    """Every trial that was asked of a study's sampler: started, refused or a duplicate."""

    def __init__(
        self,
        trials: Iterable[FrozenTrial],
        alternatives: Sequence[Mapping[str, Scalar]] = (),
    ) -> None:
        """`trials` are in the order of their numbers; `alternatives` are as in `Candidates`."""
        self.asks = 0
        self.given: set[int] = set()
        """The asks whose configurations a program has chosen."""
        self.refused: set[int] = set()
        self.consecutive_rejections = 0
        """Refusals and duplicates since the last started trial."""
        self.number_by_identity: dict[str, int] = {}
        """The started trials' numbers by identity."""
        self.window = TrialWindow()
        self._starts: list[tuple[int, int]] = []
        """The ask and the place of the alternative of each started trial."""
        self.rejections = [0] * len(alternatives)
        self._alternatives = alternatives
        self._ask_by_number: dict[int, int] = {}
        for trial in trials:
            self.add(trial)

    def add(self, trial: FrozenTrial) -> None:
        """Add the next trial that was asked of the sampler."""
        rejected = trial_store.is_rejected(trial)
        self._ask_by_number[trial.number] = self.asks
        if trial.user_attrs.get(trial_store.ORIGIN_KEY) == trial_store.GIVEN:
            self.given.add(self.asks)
        if trial_store.REFUSAL_KEY in trial.user_attrs:
            self.refused.add(self.asks)
        self.asks += 1
        self.consecutive_rejections = self.consecutive_rejections + 1 if rejected else 0
        if trial_store.IDENTITY_KEY in trial.user_attrs and not rejected:
            self.number_by_identity[trial.user_attrs[trial_store.IDENTITY_KEY]] = trial.number
        for place, choice in enumerate(self._alternatives):
            if choice.items() <= trial.params.items():
                self.rejections[place] += rejected
                self._starts += [] if rejected else [(self.asks - 1, place)]
        self.window.add(trial)

    def count_starts(self, led: Container[int] = (), *, is_led: bool = False) -> list[int]:
        """The started trials of each alternative at the asks that a prior has `led`, or at the others."""
        counts = Counter(place for ask, place in self._starts if (ask in led) == is_led)
        return [counts[place] for place in range(len(self._alternatives))]

    def list_learnt(self) -> dict[int, FrozenTrial]:
        """The trials that a sampler learns from, by the number of their ask."""
        return {self._ask_by_number[trial.number]: trial for trial in self.window.list_trials()}


class TrialWindow:
    """The trials that a sampler learns from: all of a short study, a bounded part of a long one.

    The part has the best and the newest ended or paused trials, and the newest running trials. It has all
    trials that TPE models as good, which are 25 at most, and a sample of those that TPE models as bad. It
    depends on the trials only, not on the order in which they ended, so a resumed study has the same part.
    """

    def __init__(self) -> None:
        self._trials: dict[int, FrozenTrial] = {}
        self._ranks: list[Rank] = []
        self._newest: list[int] = []
        self._running: list[int] = []

    def add(self, trial: FrozenTrial) -> None:
        """Add a trial, or replace a running or paused trial by its later state."""
        trial = trial_store.present_to_sampler(trial)
        if (known := self._trials.pop(trial.number, None)) is not None:
            for numbers in (self._running, self._newest):
                if trial.number in numbers:
                    numbers.remove(trial.number)
            if (rank := _rank(known)) in self._ranks:
                self._ranks.remove(rank)
        if trial.state is OptunaState.RUNNING:
            self._trials[trial.number] = trial
            insort(self._running, trial.number)
        elif trial.state in (OptunaState.COMPLETE, OptunaState.PRUNED):
            self._trials[trial.number] = trial
            insort(self._ranks, _rank(trial))
            insort(self._newest, trial.number)
            self._drop_surplus()

    def list_trials(self) -> list[FrozenTrial]:
        """The trials of the part, by number."""
        numbers = {rank[-1] for rank in self._ranks}.union(self._newest, self._running[-MAX_RUNNING_TRIALS:])
        return [self._trials[number] for number in sorted(numbers)]

    def _drop_surplus(self) -> None:
        del self._ranks[MAX_BEST_TRIALS:], self._newest[:-MAX_NEWEST_TRIALS]
        kept = {rank[-1] for rank in self._ranks}.union(self._newest, self._running)
        for number in self._trials.keys() - kept:
            del self._trials[number]


def _rank(trial: FrozenTrial) -> Rank:
    """TPE's order, the best first: complete by value, stopped by tokens and value, then refused."""
    if sum(violation for violation in trial.constraints.values() if violation > 0):
        return (2, 0.0, 0.0, trial.number)
    if trial.state is OptunaState.COMPLETE:
        return (0, 0.0, trial.value if trial.value is not None else math.inf, trial.number)
    if trial.last_step is None:
        return (1, 1.0, 0.0, trial.number)
    value = trial.intermediate_values[trial.last_step]
    return (1, -float(trial.last_step), math.inf if math.isnan(value) else value, trial.number)


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

    @cached_property
    def alternatives(self) -> Sequence[Mapping[str, Scalar]]:
        """The parameters that choose each alternative of the study's question."""
        return self.space.list_alternatives(self.compared)

    def sample(self, trial: Any) -> dict[str, Any]:
        """The configuration that a trial or a chooser draws."""
        return self.space.sample(trial, self.measure_size)

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
        random, size = RandomChooser(seed), self.space.size()
        if size is None or size > MAX_CANDIDATE_POINTS:
            choosers = (PinnedChooser(choice, random) for _ in range(MAX_CANDIDATE_POINTS))
        else:
            points = [point for point in self.space.points() if choice.items() <= point.items()]
            choosers = (PinnedChooser(point, random) for point in random.shuffle(points))
        for chooser in choosers:
            try:
                configuration = self.sample(chooser)
                is_new = self.identify(configuration) not in history.number_by_identity
                if is_new and not self.get_refusal_reason(configuration):
                    return chooser.parameters
            except ConfigurationError:
                continue
        return None


class Proposer:
    """Proposes the trials of one study.

    The same sampler seed and the same order of calls give the same proposals, whether or not the study was
    closed in between.
    """

    def __init__(self, store: TrialStore, candidates: Candidates) -> None:
        self._store, self._candidates = store, candidates
        self._config = config = candidates.sampler
        alternatives = len(candidates.alternatives)
        self._startup_trials = max(config.startup_trials, MIN_ALTERNATIVE_TRIALS * alternatives)
        self._trials_per_alternative = self._startup_trials // max(alternatives, 1)
        self._untriable: set[int] = set()
        """The alternatives without a point that may start."""
        prior = store.keep_points(trial_store.PRIOR_POINTS_KEY, candidates.list_prior_points)
        initial = store.keep_points(trial_store.INITIAL_POINTS_KEY, candidates.list_initial_points)
        grid = list(candidates.space.points()) if config.tries_every_point else []
        if not candidates.is_grid_ordered:
            grid = RandomChooser(config.seed).shuffle(grid)
        self._planned_points = [*initial, *grid]
        self._space = JointSpace(candidates.space)
        prior = prior if config.follows_prior(candidates.objectives.count) else []
        self._prior = PriorTrials(prior, self._space, len(self._planned_points), candidates.alternatives)
        self._is_exhausted = False
        self._cached_history: History | None = None
        self._issued_numbers = {
            trial.number for trial in store.list_asked() if trial.state is OptunaState.RUNNING
        }

    def propose_next(self) -> StoredTrial | None:
        """The next trial to run; None when the space is exhausted or 40 samples in a row were rejected."""
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

    def propose_given(self, parameters: Mapping[str, Scalar]) -> StoredTrial:
        """A trial with the given parameters. Raises StudyError when it is rejected."""
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

    def update_trial(self, number: int) -> None:
        """Let the sampler learn from the trial's pause or end."""
        if self._cached_history is not None:
            self._cached_history.window.add(self._store.read_trial(number))

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
