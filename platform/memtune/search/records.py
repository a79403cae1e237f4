"""How a proposal and its outcome are written into an Optuna trial, and read back."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from memtune.search.outcomes import Outcome, Proposal, State

__all__ = [
    "CONFIGURATION",
    "DUPLICATE_OF",
    "ENDING",
    "IDENTITY",
    "INTERRUPTED",
    "REFUSED",
    "SECONDS",
    "STATES",
    "is_rejected",
    "outcome",
    "proposal",
    "started",
]

CONFIGURATION = "configuration"
IDENTITY = "identity"
"""Written last: with it a proposal is whole."""
ENDING = "ending"
"""State and reason of a trial's end, and the report that brought it; written first, so that an end that was
decided is carried out even if a kill comes in between."""
REFUSED = "refused"
DUPLICATE_OF = "duplicate_of"
INTERRUPTED = "interrupted"
SECONDS = "seconds"
"""Of the study: wall-clock time its drivers have run."""

STATES: dict[TrialState, State] = {
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


def is_rejected(trial: FrozenTrial) -> bool:
    """Whether the trial was sampled but never started: refused, or a duplicate of another."""
    return REFUSED in trial.user_attrs or DUPLICATE_OF in trial.user_attrs


def started(history: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that were proposed whole, whatever became of them."""
    return [trial for trial in history if IDENTITY in trial.user_attrs and not is_rejected(trial)]


def proposal(trial: FrozenTrial) -> Proposal:
    """The trial as it was proposed."""
    return Proposal(
        number=trial.number,
        parameters=dict(trial.params),
        configuration=trial.user_attrs[CONFIGURATION],
        identity=trial.user_attrs[IDENTITY],
    )


def outcome(trial: FrozenTrial) -> Outcome:
    """The trial as it stands."""
    state, reason = _verdict(trial)
    return Outcome(
        number=trial.number,
        identity=trial.user_attrs[IDENTITY],
        configuration=trial.user_attrs[CONFIGURATION],
        state=state,
        value=trial.value,
        curve=dict(sorted(trial.intermediate_values.items())),
        reason=reason,
    )


def _verdict(trial: FrozenTrial) -> tuple[State, str | None]:
    attributes = trial.user_attrs
    if REFUSED in attributes:
        return "refused", attributes[REFUSED]
    if DUPLICATE_OF in attributes:
        return "duplicate", f"the same configuration as trial {attributes[DUPLICATE_OF]}"
    return STATES[trial.state], attributes.get(ENDING, {}).get("reason")
