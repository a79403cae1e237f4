"""Several objectives for samplers, although a study's storage holds one value per trial.

The storage of a study is the same with one objective and with several: the other objectives follow from the
configuration and the usage of a trial, which it holds. Samplers see copies of trials that have them.
"""

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from memtune.search.optuna_trials import REFUSAL_KEY, read_outcome
from memtune.search.outcomes import Outcome

__all__ = ["MultiObjective", "attach_objectives"]


@dataclass(frozen=True)
class MultiObjective:
    """Objectives that are better the lower they are."""

    count: int
    measure: Callable[[Outcome], Sequence[float]]
    """The objectives of a complete trial; infinite where one is unknown."""


def attach_objectives(trials: Sequence[FrozenTrial], objectives: MultiObjective) -> list[FrozenTrial]:
    """The trials, complete ones with all objectives.

    A refused configuration that counts as complete has the worst value in every objective: a model that is
    too small must not look good. An unknown objective is the worst one too.
    """
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    measured = {
        trial.number: objectives.measure(read_outcome(trial))
        for trial in complete
        if REFUSAL_KEY not in trial.user_attrs
    }
    worst = [
        max((value for value in column if math.isfinite(value)), default=0.0)
        for column in zip(*measured.values(), strict=True)
    ] or [0.0] * objectives.count
    return [_attach(trial, measured.get(trial.number, worst), worst) for trial in trials]


def _attach(trial: FrozenTrial, values: Sequence[float], worst: Sequence[float]) -> FrozenTrial:
    if trial.state is not TrialState.COMPLETE:
        return trial
    attached = copy(trial)
    attached.values = [
        value if math.isfinite(value) else bound for value, bound in zip(values, worst, strict=True)
    ]
    return attached
