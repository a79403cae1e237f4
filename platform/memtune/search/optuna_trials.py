"""The attributes in which an Optuna trial holds a proposal and its outcome."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from memtune.errors import StudyError
from memtune.search.outcomes import Outcome, Proposal
from memtune.trial_state import TrialEnd, TrialState, read_earlier_end
from memtune.usage import Usage

CONFIGURATION_KEY = "configuration"
IDENTITY_KEY = "identity"
"""Written last: a trial without an identity is incomplete."""
END_KEY = "ending"
"""Optuna's state, the TrialEnd and the last report of an ended trial. Written before Optuna's own state, so
that a later driver applies an end that a killed driver had decided."""
REFUSAL_KEY = "refused"
DUPLICATE_OF_KEY = "duplicate_of"
INTERRUPTED_KEY = "interrupted"
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

STATES = {
    optuna.trial.TrialState.RUNNING: TrialState.RUNNING,
    optuna.trial.TrialState.COMPLETE: TrialState.COMPLETE,
    optuna.trial.TrialState.PRUNED: TrialState.STOPPED,
    optuna.trial.TrialState.FAIL: TrialState.FAILED,
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


def is_paused(trial: FrozenTrial) -> bool:
    """Whether the trial waits with its checkpoint."""
    return trial.state is optuna.trial.TrialState.RUNNING and not trial.user_attrs.get(PAUSE_KEY, {}).get(
        "is_resumed", True
    )


def present_to_sampler(trial: FrozenTrial) -> FrozenTrial:
    """The trial as samplers see it: a trial that has been paused is pruned there until it ends.

    A resumed trial keeps this view, so that what a sampler learns from never shrinks while trials run.
    """
    pause = trial.user_attrs.get(PAUSE_KEY)
    if pause is None or trial.state is not optuna.trial.TrialState.RUNNING:
        return trial
    shown = copy(trial)
    shown.state = optuna.trial.TrialState.PRUNED
    shown.intermediate_values = {
        tokens: value for tokens, value in trial.intermediate_values.items() if tokens <= pause["tokens"]
    }
    return shown


def select_started(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that were stored as proposals, in any state."""
    return [trial for trial in trials if IDENTITY_KEY in trial.user_attrs and not is_rejected(trial)]


def read_proposal(trial: FrozenTrial) -> Proposal:
    """The proposal that a trial holds."""
    return Proposal(
        number=trial.number,
        parameters=dict(trial.params),
        configuration=trial.user_attrs[CONFIGURATION_KEY],
        identity=trial.user_attrs[IDENTITY_KEY],
    )


def read_seconds_spent(attributes: Mapping[str, Any]) -> float:
    """Wall-clock seconds that all drivers have run a study, from the study's attributes."""
    return float(attributes.get(SECONDS_SPENT_KEY, 0.0))


def read_outcome(trial: FrozenTrial) -> Outcome:
    """The outcome that a trial holds now.

    Raises StudyError for attributes that this version of memtune does not write.
    """
    try:
        return _read_outcome(trial)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise StudyError(
            f"trial {trial.number} is stored as this version of memtune does not store trials "
            f"({str(error).partition(chr(10))[0]}); start the study again under another name"
        ) from None


def _read_outcome(trial: FrozenTrial) -> Outcome:
    attributes = trial.user_attrs
    stored = attributes[PAUSE_KEY] if is_paused(trial) else attributes.get(END_KEY, {})
    end = None if stored.get("end") is None else TrialEnd.model_validate(stored["end"])
    if "reason" in stored:
        end = read_earlier_end(stored["reason"])
    # Stores before 2026-11-22 have no usage: its tokens are those of the curve.
    usage = attributes.get(USAGE_KEY, {"tokens": max(trial.intermediate_values, default=0)})
    return Outcome(
        number=trial.number,
        identity=trial.user_attrs[IDENTITY_KEY],
        configuration=trial.user_attrs[CONFIGURATION_KEY],
        state=_read_state(trial),
        value=trial.value,
        curve=dict(sorted(trial.intermediate_values.items())),
        end=end,
        remark=_read_remark(trial),
        usage=Usage.model_validate(usage),
    )


def _read_state(trial: FrozenTrial) -> TrialState:
    if REFUSAL_KEY in trial.user_attrs:
        return TrialState.REFUSED
    if is_paused(trial):
        return TrialState.PAUSED
    return TrialState.DUPLICATE if DUPLICATE_OF_KEY in trial.user_attrs else STATES[trial.state]


def _read_remark(trial: FrozenTrial) -> str | None:
    """Why the proposal was not started; None for a started trial."""
    if REFUSAL_KEY in trial.user_attrs:
        return str(trial.user_attrs[REFUSAL_KEY])
    if DUPLICATE_OF_KEY in trial.user_attrs:
        return f"the same configuration as trial {trial.user_attrs[DUPLICATE_OF_KEY]}"
    return None
