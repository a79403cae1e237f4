"""The trials of a study, from their proposal to their outcome, and how its Optuna storage holds them.

Every write may be repeated. A driver that is killed between two writes leaves a study that the next driver
repairs when it opens it (`recover_interrupted`).
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from memtune.errors import StudyError
from memtune.search.compatibility import suppress_optuna_messages
from memtune.spaces import Scalar
from memtune.trial_state import StopReason, TrialEnd, TrialState, read_earlier_end
from memtune.usage import Usage
from memtune.values import parse

if TYPE_CHECKING:
    from memtune.training import TrialConfig

Sizes = Mapping[str, int | None]
"""What a model takes, by name (`TrialSizes`)."""


@dataclass(frozen=True)
class StoredTrial:
    """The present state of a trial, from the proposal of the sampler on.

    `value` is the final value of a complete trial and the last one of a stopped trial, lower is better;
    `curve` has the reported values by tokens seen; `end` says why a trial was stopped, paused or failed,
    `usage` what it has used, `remark` why a proposal was refused or which trial it repeats.
    """

    number: int
    identity: str
    configuration: dict[str, Any]
    state: TrialState
    value: float | None = None
    curve: dict[int, float] = field(default_factory=dict)
    end: TrialEnd | None = None
    remark: str | None = None
    usage: Usage = field(default_factory=Usage)
    sizes: Sizes = field(default_factory=dict)
    """Of a user's family, whose source is not at hand where the study is read; else empty."""
    parameters: dict[str, Scalar] = field(default_factory=dict)
    """Of the space, as they were sampled, by name."""
    is_led: bool = False
    """Whether a prior led the sampler to it; False in studies of earlier versions."""
    alternative: str = ""
    """What the trial answers; empty as read from storage, which does not know what the study compares."""

    @property
    def family(self) -> str:
        """The family of the trial's model; empty in a configuration without one."""
        return str(self.configuration.get("model", {}).get("family", ""))

    @property
    def has_diverged(self) -> bool:
        """Whether it ended because its loss, gradient or validation diverged."""
        return self.end is not None and self.end.reason is StopReason.DIVERGED

    @cached_property
    def config(self) -> "TrialConfig":
        """The configuration as a value. Raises ConfigurationError for one of another version of memtune."""
        # Imported here: it imports PyTorch, and lists of studies need no configuration.
        from memtune.training import TrialConfig

        config: TrialConfig = parse(TrialConfig, self.configuration, f"trial {self.number}")
        return config


CONFIGURATION_KEY = "configuration"
IDENTITY_KEY = "identity"
"""Written last: a trial without an identity is incomplete."""
END_KEY = "ending"
"""Optuna's state, the TrialEnd and the last report of an ended trial. Written before Optuna's own state, so
that a later driver applies an end that a killed driver had decided."""
REFUSAL_KEY = "refused"
DUPLICATE_OF_KEY = "duplicate_of"
INTERRUPTED_KEY = "interrupted"
ORIGIN_KEY, GIVEN, PRIOR = "origin", "given", "prior"
"""Who chose the configuration with the sampler: a program or a prior; missing where the sampler alone did."""
INITIAL_POINTS_KEY = "initial_points"
PRIOR_POINTS_KEY = "prior_points"
"""Attribute of the study: what is tried first, as its first driver found it."""
PAUSE_KEY = "pause"
"""The TrialEnd and the last report of the newest pause, and whether the trial has been resumed since. Optuna
has no such state: a paused trial is a running one of Optuna."""
SECONDS_SPENT_KEY = "seconds"
"""Attribute of the study: wall-clock seconds that its drivers have run."""

FORMAT_KEY, STUDY_FORMAT = "format", 2
"""The format of a stored study, in its attributes and its terms; those before the first release have none."""

USAGE_KEY = "usage"
"""What a trial has used, at its worker's last report."""
SIZES_KEY = "sizes"
"""What a model of a user's source takes."""

STATES = {
    OptunaState.RUNNING: TrialState.RUNNING,
    OptunaState.COMPLETE: TrialState.COMPLETE,
    OptunaState.PRUNED: TrialState.STOPPED,
    OptunaState.FAIL: TrialState.FAILED,
}
"""memtune's state of a started trial by Optuna's."""


def check_format(stored: Mapping[str, Any], study: str) -> None:
    """Raise StudyError for the attributes or terms of a study of a later version of memtune."""
    if (found := stored.get(FORMAT_KEY, 1)) != 1 and found != STUDY_FORMAT:
        raise StudyError(
            f"study {study} is stored in format {found}, and this memtune reads up to {STUDY_FORMAT}; "
            "update memtune"
        )


def is_rejected(trial: FrozenTrial) -> bool:
    """Whether the trial was sampled but never started: refused, or a duplicate of another."""
    return REFUSAL_KEY in trial.user_attrs or DUPLICATE_OF_KEY in trial.user_attrs


def has_failed(trial: FrozenTrial) -> bool:
    """Whether the trial was started and failed; in the view of samplers it is pruned."""
    return bool(trial.user_attrs.get(END_KEY, {}).get("state") == OptunaState.FAIL.name)


def is_paused(trial: FrozenTrial) -> bool:
    """Whether the trial waits with its checkpoint."""
    pause = trial.user_attrs.get(PAUSE_KEY, {})
    return trial.state is OptunaState.RUNNING and not pause.get("is_resumed", True)


def present_to_sampler(trial: FrozenTrial) -> FrozenTrial:
    """The trial as samplers see it: a trial that has been paused is pruned there until it ends.

    A resumed trial keeps this view, so that what a sampler learns from never shrinks while trials run. A
    failed trial is pruned without a value, the worst that samplers know: they ignore failures, and would
    sample again where a rate diverges or a model needs too much memory.
    """
    if trial.state is OptunaState.FAIL and has_failed(trial):
        shown = copy(trial)
        shown.state, shown.intermediate_values = OptunaState.PRUNED, {}
        return shown
    pause = trial.user_attrs.get(PAUSE_KEY)
    if pause is None or trial.state is not OptunaState.RUNNING:
        return trial
    shown = copy(trial)
    shown.state = OptunaState.PRUNED
    shown.intermediate_values = {
        tokens: value for tokens, value in trial.intermediate_values.items() if tokens <= pause["tokens"]
    }
    return shown


def select_started(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that were stored as proposals, in any state."""
    return [trial for trial in trials if IDENTITY_KEY in trial.user_attrs and not is_rejected(trial)]


def read_seconds_spent(attributes: Mapping[str, Any]) -> float:
    """Wall-clock seconds that all drivers have run a study, from the study's attributes."""
    return float(attributes.get(SECONDS_SPENT_KEY, 0.0))


def read_outcome(trial: FrozenTrial) -> StoredTrial:
    """The outcome that a trial holds now; raises StudyError for attributes of another version of memtune."""
    attributes = trial.user_attrs
    try:
        stored = attributes[PAUSE_KEY] if is_paused(trial) else attributes.get(END_KEY, {})
        end = None if stored.get("end") is None else TrialEnd.model_validate(stored["end"])
        if "reason" in stored:
            end = read_earlier_end(stored["reason"])
        # Stores before 2026-11-22 have no usage: its tokens are those of the curve.
        usage = attributes.get(USAGE_KEY, {"tokens": max(trial.intermediate_values, default=0)})
        state, remark = _read_state(trial)
        return StoredTrial(
            number=trial.number,
            identity=attributes[IDENTITY_KEY],
            configuration=attributes[CONFIGURATION_KEY],
            state=state,
            value=trial.value,
            curve=dict(sorted(trial.intermediate_values.items())),
            end=end,
            remark=remark,
            usage=Usage.model_validate(usage),
            sizes=attributes.get(SIZES_KEY, {}),
            parameters=dict(trial.params),
            is_led=attributes.get(ORIGIN_KEY) == PRIOR,
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise StudyError(
            f"trial {trial.number} is stored as this version of memtune does not store trials "
            f"({str(error).partition(chr(10))[0]}); start the study again under another name"
        ) from None


def read_started(trials: Sequence[FrozenTrial]) -> list[StoredTrial]:
    """The outcomes of the trials that were started."""
    return [read_outcome(trial) for trial in select_started(trials)]


def _read_state(trial: FrozenTrial) -> tuple[TrialState, str | None]:
    """The state of a trial, and why it was not started; None for a started trial."""
    refusal, original = trial.user_attrs.get(REFUSAL_KEY), trial.user_attrs.get(DUPLICATE_OF_KEY)
    if refusal is not None:
        return TrialState.REFUSED, str(refusal)
    if original is not None:
        return TrialState.DUPLICATE, f"the same configuration as trial {original}"
    return TrialState.PAUSED if is_paused(trial) else STATES[trial.state], None


ListPoints = Callable[[], Sequence[Mapping[str, Scalar]]]
"""Lists points of a space, as values of parameters by name."""


class TrialStore:
    """One study of an Optuna storage, created when it is new.

    `guard` is called before every write. It raises when this driver must not write any more.
    """

    def __init__(
        self, storage: optuna.storages.BaseStorage, study_name: str, guard: Callable[[], None]
    ) -> None:
        """Open the study; raises what the storage raises when it does not answer."""
        self._storage, self.guard = storage, guard
        with suppress_optuna_messages():
            self._study = optuna.create_study(
                storage=storage, study_name=study_name, direction="minimize", load_if_exists=True
            )
        self._study_id = storage.get_study_id_from_name(study_name)
        check_format(self._study.user_attrs, study_name)
        if not self._study.get_trials(deepcopy=False):
            guard()
            self._study.set_user_attr(FORMAT_KEY, STUDY_FORMAT)

    def check(self) -> None:
        """Raise when this driver must not write any more, or when the storage cannot be read."""
        self.guard()
        self._storage.get_study_user_attrs(self._study_id)

    def list_asked(self) -> list[FrozenTrial]:
        """Every trial that was asked of the sampler, without those that a kill left incomplete."""
        return [
            trial
            for trial in self._study.get_trials(deepcopy=False)
            if trial.state is not OptunaState.WAITING and INTERRUPTED_KEY not in trial.user_attrs
        ]

    def read_trial(self, number: int) -> FrozenTrial:
        """A trial as it is stored now. Raises StudyError when the study has no such trial."""
        return self._storage.get_trial(self._find_id(number))

    def read_seconds_spent(self) -> float:
        """Wall-clock seconds that all drivers have run this study, as last stored."""
        return read_seconds_spent(self._study.user_attrs)

    def write_seconds_spent(self, seconds: float) -> None:
        """Store the wall-clock seconds that all drivers have run this study."""
        self.guard()
        self._study.set_user_attr(SECONDS_SPENT_KEY, seconds)

    def keep_points(self, key: str, list_points: ListPoints) -> list[dict[str, Scalar]]:
        """The study's points of a kind, as its first driver has listed and stored them.

        Points from another study change while that study runs, or are removed with it. A study with trials
        has its own again, also where it had none.
        """
        stored: list[dict[str, Scalar]] | None = self._study.user_attrs.get(key)
        if stored is not None or self._study.get_trials(deepcopy=False):
            return stored or []
        points = [dict(point) for point in list_points()]
        if points:
            self.guard()
            self._study.set_user_attr(key, points)
        return points

    def enqueue(self, parameters: Mapping[str, Scalar]) -> None:
        """Let the next trial take these parameters, unless a killed driver left some enqueued."""
        if parameters and not self._study.get_trials(deepcopy=False, states=(OptunaState.WAITING,)):
            self._study.enqueue_trial(dict(parameters))

    def drop_enqueued(self) -> None:
        """Forget the parameters that a killed driver left enqueued."""
        for trial in self._study.get_trials(deepcopy=False, states=(OptunaState.WAITING,)):
            trial_id = self._find_id(trial.number)
            self._storage.set_trial_user_attr(trial_id, INTERRUPTED_KEY, True)
            self._storage.set_trial_state_values(trial_id, OptunaState.FAIL)

    def ask(self, sampler: optuna.samplers.BaseSampler, origin: str | None = None) -> optuna.Trial:
        """A new trial of the sampler; `origin` is GIVEN or PRIOR, or None."""
        self._study.sampler = sampler
        trial = self._study.ask()
        if origin is not None:
            trial.set_user_attr(ORIGIN_KEY, origin)
        return trial

    def write_proposal(
        self, trial: optuna.Trial, configuration: dict[str, Any], identity: str, sizes: Sizes
    ) -> None:
        """Store the trial as one to run."""
        trial.set_user_attr(CONFIGURATION_KEY, configuration)
        if sizes:
            trial.set_user_attr(SIZES_KEY, dict(sizes))
        self.guard()  # sampling takes seconds; a trial without an identity does not count
        trial.set_user_attr(IDENTITY_KEY, identity)

    def write_duplicate(
        self, trial: optuna.Trial, configuration: dict[str, Any], identity: str, original: FrozenTrial
    ) -> None:
        """End the trial with the result of the trial that it repeats."""
        trial.set_user_attr(DUPLICATE_OF_KEY, original.number)
        trial.set_user_attr(CONFIGURATION_KEY, configuration)
        trial.set_user_attr(IDENTITY_KEY, identity)
        if original.state is OptunaState.COMPLETE:
            self._study.tell(trial, original.value)
        elif original.state is OptunaState.PRUNED:
            if original.last_step is not None:
                trial.report(original.intermediate_values[original.last_step], original.last_step)
            self._study.tell(trial, state=OptunaState.PRUNED)
        else:
            self._study.tell(trial, state=OptunaState.FAIL)

    def write_refusal(
        self, trial: optuna.Trial, configuration: dict[str, Any], reason: str, identity: str = ""
    ) -> None:
        """End the trial as pruned and infeasible: samplers avoid such regions and ignore failures."""
        trial.set_user_attr(REFUSAL_KEY, reason)
        trial.set_user_attr(CONFIGURATION_KEY, configuration)
        trial.set_user_attr(IDENTITY_KEY, identity)
        trial.set_constraint(REFUSAL_KEY, 1.0)
        self._study.tell(trial, state=OptunaState.PRUNED)

    def write_report(self, number: int, tokens: int, value: float) -> None:
        """Add a point to a running trial's curve; the first value at a number of tokens stays."""
        self.guard()
        trial_id, trial = self._find_running_trial(number)
        if tokens not in trial.intermediate_values:
            self._storage.set_trial_intermediate_value(trial_id, tokens, float(value))

    def write_usage(self, number: int, usage: dict[str, Any]) -> None:
        """Store what a running trial has used."""
        self.guard()
        trial_id, trial = self._find_running_trial(number)
        if trial.user_attrs.get(USAGE_KEY) != usage:
            self._storage.set_trial_user_attr(trial_id, USAGE_KEY, usage)

    def write_end(self, number: int, ending: dict[str, Any]) -> None:
        """End a trial, unless it has ended like this: the answer to the first attempt may be lost."""
        self.guard()
        trial = self.read_trial(number)
        if trial.state.is_finished() and trial.user_attrs.get(END_KEY) == ending:
            return
        trial_id, _ = self._find_running_trial(number)
        self._storage.set_trial_user_attr(trial_id, END_KEY, ending)
        self._apply_end(number, ending)

    def write_pause(self, number: int, end: dict[str, Any], tokens: int, value: float) -> None:
        """Pause a running trial at a report. One write holds both, so that a kill loses neither."""
        self.guard()
        pause = {"end": end, "tokens": tokens, "value": value, "is_resumed": False}
        self._storage.set_trial_user_attr(self._find_running_trial(number)[0], PAUSE_KEY, pause)
        self.write_report(number, tokens, value)

    def write_resumption(self, number: int) -> None:
        """Continue a paused trial."""
        self.guard()
        trial_id, trial = self._find_running_trial(number)
        pause = {**trial.user_attrs[PAUSE_KEY], "is_resumed": True}
        self._storage.set_trial_user_attr(trial_id, PAUSE_KEY, pause)

    def recover_interrupted(self) -> None:
        """Complete the ends and pauses that a killed driver had decided; drop proposals stored in part."""
        self.guard()
        for trial in self._study.get_trials(deepcopy=False, states=(OptunaState.RUNNING,)):
            if END_KEY in trial.user_attrs:
                self._apply_end(trial.number, trial.user_attrs[END_KEY])
            elif pause := trial.user_attrs.get(PAUSE_KEY):
                self.write_report(trial.number, pause["tokens"], pause["value"])
            elif IDENTITY_KEY not in trial.user_attrs or is_rejected(trial):
                self._storage.set_trial_user_attr(self._find_id(trial.number), INTERRUPTED_KEY, True)
                self._study.tell(trial.number, state=OptunaState.FAIL)

    def _find_id(self, number: int) -> int:
        """The storage's id of a trial. Raises StudyError when the study has no such trial."""
        try:
            return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        except KeyError:
            raise StudyError(f"the study has no trial {number}") from None

    def _find_running_trial(self, number: int) -> tuple[int, FrozenTrial]:
        trial_id = self._find_id(number)
        trial = self._storage.get_trial(trial_id)
        if trial.state is not OptunaState.RUNNING:
            raise StudyError(f"trial {number} has ended ({STATES[trial.state]}) and takes no more reports")
        return trial_id, trial

    def _apply_end(self, number: int, ending: dict[str, Any]) -> None:
        state = OptunaState[ending["state"]]
        if state is OptunaState.COMPLETE:
            self._study.tell(number, ending["value"])
            return
        if ending.get("tokens") is not None:
            self.write_report(number, ending["tokens"], ending["value"])
        self._study.tell(number, state=state)
