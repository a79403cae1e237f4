"""The dialogue with the sampler: ask for a configuration, report on it, tell how it ended.

One Optuna study holds all of it, so that a driver that was killed finds everything again in its storage: the
sampled parameters, the configuration, the trial's identity, the curve and the reason of its end. The driver
is the study's only writer. While the storage is away, what trials report waits (`patience`).
"""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from memtune.errors import ConfigurationError, StudyError
from memtune.search.history import History
from memtune.search.outcomes import Outcome, Proposal
from memtune.search.patience import Patience, StorageAwayError, answering
from memtune.search.records import (
    CONFIGURATION,
    DUPLICATE_OF,
    ENDING,
    IDENTITY,
    INTERRUPTED,
    REFUSED,
    SECONDS,
    STATES,
    is_rejected,
    outcome,
    proposal,
    started,
)
from memtune.search.samplers import SamplerConfig, make_sampler, quiet
from memtune.search.storages import open_storage, shown
from memtune.spaces import CountParameters, PinnedChooser, RandomChooser, Scalar, Space
from memtune.values import digest

__all__ = ["Proposals"]

SAMPLER_TRIES = 20
"""Proposals in a row that may come to nothing before the sampler is left alone."""
FAMILY_TRIES = 5
"""Proposals of a family that may come to nothing before its first trial is left to the sampler."""
MOST_TURNS = 2 * SAMPLER_TRIES
"""Turns after which a single call gives up, whatever happens."""
POINTS = 4096
"""Points of a space that are looked through for one that is new."""


class Proposals:
    """The trials of one study, found again under the same name in the same storage.

    `identify` names a configuration by its content; `refuse` gives the reason why one must not start (too
    many parameters, too little memory) or None. The same sampler seed and the same order of calls give the
    same proposals, whether or not the study was closed in between.
    """

    def __init__(
        self,
        storage_url: str,
        study_name: str,
        space: Space,
        sampler: SamplerConfig,
        identify: Callable[[dict[str, Any]], str],
        refuse: Callable[[dict[str, Any]], str | None],
        count_parameters: CountParameters | None = None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        """`guard` is called before every write and raises when this driver may write no more."""
        self._space = space
        self._sampler = sampler
        self._identify = identify
        self._refuse = refuse
        self._count_parameters = count_parameters
        self._guard = guard
        self._storage = open_storage(storage_url)
        self._patience = Patience(shown(storage_url))
        self._exhausted = False
        with answering(shown(storage_url)):
            self._open(study_name)

    def _open(self, study_name: str) -> None:
        with quiet():
            self._study = optuna.create_study(
                storage=self._storage, study_name=study_name, direction="minimize", load_if_exists=True
            )
        self._study_id = self._storage.get_study_id_from_name(study_name)
        self._guard()
        self._end_interrupted()
        self._past: History | None = None
        self._handed_out = {trial.number for trial in self._history() if trial.state is TrialState.RUNNING}

    def ask(self) -> Proposal | None:
        """The next trial to run, stored as running; None when nothing new is left to try.

        A configuration already known is not run again: it is told its known result and marked as a
        duplicate. A refused one is recorded with its reason. Neither is returned, and neither counts.
        The first trials go one to each family of the space, so that none is passed over by chance. After 20
        fruitless turns in a row an untried point is taken at random: of all points where the space is
        small, of as many draws where it is not.

        Raises StorageAwayError when the storage does not answer; asked again when it does, the proposal is
        the one that there would have been.
        """
        found = self._patience.ask(self._next)
        if found is not None:
            self._handed_out.add(found.number)
        return found

    def _next(self) -> Proposal | None:
        self._guard()
        if self._past is None:
            self._end_interrupted()
            if stored := self._stored_only():
                return stored
        for _ in range(MOST_TURNS):
            if self._exhausted:
                break
            history, self._past = self._past or History(self._history()), None
            given_up = history.fruitless >= SAMPLER_TRIES or self._all_known(history)
            if not given_up:
                self._enqueue(self._family_without_trial(history))
            found = self._propose_untried(history) if given_up else self._propose(history)
            self._past = history  # not where a fault left a turn half done: then it is read again
            if found:
                return found
        return None

    def _stored_only(self) -> Proposal | None:
        """A proposal of which the storage has not said that it stored it, so that nobody has it yet."""
        for trial in started(self._history()):
            if trial.state is TrialState.RUNNING and trial.number not in self._handed_out:
                return proposal(trial)
        return None

    def report(self, number: int, tokens: int, value: float) -> None:
        """Add a point to a running trial's curve; what was first reported at a number of tokens stays."""
        self._patience.write(lambda again: self._report(number, tokens, value))

    def complete(self, number: int, value: float) -> None:
        """End a trial with its final value; a value that is not finite is a failure."""
        if math.isfinite(value):
            self._end(number, TrialState.COMPLETE, value=float(value))
        else:
            self.fail(number, f"the objective is {value}")

    def prune(self, number: int, reason: str, tokens: int | None = None, value: float | None = None) -> None:
        """End a trial that is not worth going on with; the sampler learns from its curve.

        With `tokens` and `value`, the report that condemned it becomes part of the curve in the same write:
        no kill can come between the two and leave a trial running that was meant to stop.
        """
        self._end(number, TrialState.PRUNED, reason=reason, tokens=tokens, value=value)

    def fail(self, number: int, reason: str) -> None:
        """End a trial that went wrong; the sampler learns nothing from it."""
        self._end(number, TrialState.FAIL, reason=reason)

    def unfinished(self) -> list[Proposal]:
        """The running trials, to go on with after a restart."""
        return [proposal(trial) for trial in self._started() if trial.state is TrialState.RUNNING]

    def outcomes(self) -> list[Outcome]:
        """Every trial that was started, the running ones included: what a budget of trials counts.

        Waits, like every question about the past, for a storage that is away; raises StorageAwayError when it
        stays away.
        """
        return [outcome(trial) for trial in self._started()]

    def finished(self) -> list[Outcome]:
        """Every trial that has ended."""
        return [found for found in self.outcomes() if found.state != "running"]

    def confirm(self) -> None:
        """Wait until the storage has every write; raises what the guard raises when the study was lost."""
        self._patience.insist(self._guard)

    def seconds_spent(self) -> float:
        """Wall-clock seconds that drivers have run this study for, as they told it."""
        return float(self._patience.insist(lambda: self._study.user_attrs.get(SECONDS, 0.0)))

    def spend(self, seconds: float) -> None:
        """Store the seconds spent so far, those of earlier drivers included, unless the storage is away."""
        with suppress(StorageAwayError):
            self._patience.ask(lambda: self._spend(seconds))

    def _spend(self, seconds: float) -> None:
        self._guard()
        self._study.set_user_attr(SECONDS, seconds)

    def rejected(self) -> list[Outcome]:
        """What was sampled but never started: duplicates and refused configurations, with the reason."""
        return [outcome(trial) for trial in self._patience.insist(self._history) if is_rejected(trial)]

    def _started(self) -> list[FrozenTrial]:
        return started(self._patience.insist(self._history))

    def _propose(self, history: History) -> Proposal | None:
        """One turn of the sampler after those of `history`, which it joins; None when it comes to nothing."""
        self._study.sampler = make_sampler(self._sampler, history.turns, history.excerpt.trials())
        trial = self._study.ask()
        found = self._configure(trial, history)
        history.add(self._storage.get_trial(trial._trial_id))
        return found

    def _configure(self, trial: optuna.Trial, history: History) -> Proposal | None:
        """The proposal that the sampler's draws make, or None where it must not start."""
        configuration: dict[str, Any] = {}
        try:
            configuration = self._space.sample(trial, self._count_parameters)
            identity = self._identify(configuration)
        except ConfigurationError as error:
            self._reject(trial, configuration, str(error))
            return None
        if (original := history.numbers.get(identity)) is not None:
            self._repeat(trial, configuration, identity, self._trial(original))
            return None
        if reason := self._refuse(configuration):
            self._reject(trial, configuration, reason, identity)
            return None
        trial.set_user_attr(CONFIGURATION, configuration)
        self._guard()  # the sampler took its time, and without an identity the trial is none
        trial.set_user_attr(IDENTITY, identity)
        return Proposal(trial.number, dict(trial.params), configuration, identity)

    def _propose_untried(self, history: History) -> Proposal | None:
        untried = self._untried_point(history)
        if untried is None:
            self._exhausted = True
            return None
        self._enqueue(untried)
        return self._propose(history)

    def _family_without_trial(self, history: History) -> dict[str, Scalar]:
        """The choice of a family that has had no trial yet, nor been refused often; empty without one."""
        for choice in self._space.family_choices():
            ((name, option),) = choice.items()
            turns, trials = history.tried(name, option)
            if not trials and turns < FAMILY_TRIES:
                return choice
        return {}

    def _enqueue(self, parameters: dict[str, Scalar]) -> None:
        """Let the next turn take these parameters, unless a driver that was killed asked for some already."""
        if parameters and not self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            self._study.enqueue_trial(parameters)

    def _repeat(
        self, trial: optuna.Trial, configuration: dict[str, Any], identity: str, original: FrozenTrial
    ) -> None:
        trial.set_user_attr(DUPLICATE_OF, original.number)
        trial.set_user_attr(CONFIGURATION, configuration)
        trial.set_user_attr(IDENTITY, identity)
        if original.state is TrialState.COMPLETE:
            self._study.tell(trial, original.value)
        elif original.state is TrialState.PRUNED:
            if original.last_step is not None:
                trial.report(original.intermediate_values[original.last_step], original.last_step)
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def _reject(
        self, trial: optuna.Trial, configuration: dict[str, Any], reason: str, identity: str = ""
    ) -> None:
        """Told as pruned and infeasible, which the sampler keeps away from; a failure it would ignore."""
        trial.set_user_attr(REFUSED, reason)
        trial.set_user_attr(CONFIGURATION, configuration)
        trial.set_user_attr(IDENTITY, identity)
        trial.set_constraint(REFUSED, 1.0)
        self._study.tell(trial, state=TrialState.PRUNED)

    def _untried_point(self, history: History) -> dict[str, Scalar] | None:
        if self._all_known(history):
            return None
        for chooser in self._choosers(turn=history.turns):
            try:
                configuration = self._space.sample(chooser, self._count_parameters)
                if self._identify(configuration) not in history.numbers and not self._refuse(configuration):
                    return chooser.parameters
            except ConfigurationError:
                continue
        return None

    def _choosers(self, turn: int) -> Iterator[PinnedChooser]:
        random = RandomChooser(int(digest(self._sampler.seed, turn, "untried")[:8], 16))
        size = self._space.size()
        if size is None or size > POINTS:
            return (PinnedChooser({}, random) for _ in range(POINTS))
        points = list(self._space.points())
        return (PinnedChooser(point, random) for point in random.shuffled(points))

    def _all_known(self, history: History) -> bool:
        size = self._space.size()
        return size is not None and len(history.numbers) >= size

    def _history(self) -> list[FrozenTrial]:
        """Every turn the sampler had, but those that a kill cut off before their proposal was stored."""
        return [
            trial
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state is not TrialState.WAITING and INTERRUPTED not in trial.user_attrs
        ]

    def _end_interrupted(self) -> None:
        """Carry out ends that were decided; drop proposals that were not stored whole."""
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if ENDING in trial.user_attrs:
                self._carry_out(trial)
            elif IDENTITY not in trial.user_attrs or is_rejected(trial):
                self._storage.set_trial_user_attr(trial._trial_id, INTERRUPTED, True)
                self._study.tell(trial.number, state=TrialState.FAIL)

    def _trial(self, number: int) -> FrozenTrial:
        try:
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        except KeyError:
            raise StudyError(f"the study has no trial {number}") from None
        return self._storage.get_trial(trial_id)

    def _running(self, number: int) -> FrozenTrial:
        trial = self._trial(number)
        if trial.state is not TrialState.RUNNING:
            raise StudyError(f"trial {number} has ended ({STATES[trial.state]}) and takes no more reports")
        return trial

    def _report(self, number: int, tokens: int, value: float) -> None:
        self._guard()
        trial = self._running(number)
        if tokens not in trial.intermediate_values:
            self._storage.set_trial_intermediate_value(trial._trial_id, tokens, float(value))

    def _end(self, number: int, state: TrialState, **ending: Any) -> None:
        told = {"state": state.name, **ending}
        self._patience.write(lambda again: self._tell(number, told, again))

    def _tell(self, number: int, ending: dict[str, Any], again: bool) -> None:
        """End a trial; `again`, after a failure, that it has ended so is what was asked for."""
        self._guard()
        if not (again and self._ending(number) == ending):
            trial = self._running(number)
            self._storage.set_trial_user_attr(trial._trial_id, ENDING, ending)
            self._carry_out(self._running(number))
        if self._past is not None:
            self._past.excerpt.add(self._trial(number))

    def _ending(self, number: int) -> dict[str, Any] | None:
        trial = self._trial(number)
        return trial.user_attrs.get(ENDING) if trial.state.is_finished() else None

    def _carry_out(self, trial: FrozenTrial) -> None:
        ending = trial.user_attrs[ENDING]
        state = TrialState[ending["state"]]
        if state is TrialState.COMPLETE:
            self._study.tell(trial.number, ending["value"])
            return
        if ending.get("tokens") is not None:
            self._report(trial.number, ending["tokens"], ending["value"])
        self._study.tell(trial.number, state=state)
