"""The values with which trials that did not run to their end count for a sampler.

The storage of a study is the same with one objective and with several: the other objectives follow from the
configuration and the usage of a trial, which it holds. Samplers see copies of trials that have them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from memtune.search.compatibility import read_sampler_attributes
from memtune.search.samplers.joint_space import JointSpace
from memtune.search.trial_store import REFUSAL_KEY, StoredTrial, has_failed, read_outcome


def extrapolate_stopped(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials, those stopped early as complete ones with an extrapolated final value.

    The extrapolated value is the last one plus the median change of complete trials from as many tokens to
    their end. While no trial is complete, it is the last value. Refused trials and trials without a value
    stay as they are.
    """
    curves = [
        (sorted(trial.intermediate_values.items()), trial.value)
        for trial in trials
        if trial.state is OptunaState.COMPLETE and trial.value is not None
    ]

    @cache
    def compute_change(tokens: int) -> float:
        """Median change of complete trials from their first report at or past a number of tokens."""
        found = []
        for curve, final in curves:
            value = next((value for seen, value in curve if seen >= tokens), math.nan)
            found += [final - value] if math.isfinite(value) else []
        return median(found) if found else 0.0

    extrapolated = []
    for trial in trials:
        if (value := _read_last_value(trial)) is not None and trial.last_step is not None:
            final = value + compute_change(trial.last_step)
            trial = _complete(trial, final, read_sampler_attributes(trial))
        extrapolated.append(trial)
    return extrapolated


def complete_trials(
    trials: Sequence[FrozenTrial], space: JointSpace, absent_seeds: Mapping[int, int] | None = None
) -> list[FrozenTrial]:
    """The trials as points of the joint space, for samplers that learn from complete trials only.

    Absent parameters take the middle of their range, or a value drawn with the trial's seed among
    `absent_seeds`, by its number. Trials that were stopped early count as complete with their last value, and
    refused and failed ones with the worst value of all. Other ended trials without a value are left out.
    """
    values = {
        trial.number: trial.value if trial.state is OptunaState.COMPLETE else _read_last_value(trial)
        for trial in trials
    }
    worst = max((value for value in values.values() if value is not None), default=None)
    completed: list[FrozenTrial] = []
    for trial in trials:
        if trial.state is OptunaState.RUNNING:
            completed.append(copy(trial))
        elif _is_worst(trial):
            completed += [] if worst is None else [_complete(trial, worst, {})]
        elif (value := values[trial.number]) is not None:
            completed.append(_complete(trial, value, read_sampler_attributes(trial)))
    for trial in completed:
        seed = None if absent_seeds is None else absent_seeds[trial.number]
        trial.params, trial.distributions = space.fill_absent(trial.params, seed), space.distributions
    return completed


def _complete(trial: FrozenTrial, value: float, system_attrs: dict[str, Any]) -> FrozenTrial:
    """A copy of the trial that is complete with the value.

    Without Optuna's attributes it has no constraint, and it belongs to no generation of NSGA-II.
    """
    completed = copy(trial)
    completed.state, completed.value, completed.system_attrs = OptunaState.COMPLETE, value, system_attrs
    return completed


def _is_worst(trial: FrozenTrial) -> bool:
    return REFUSAL_KEY in trial.user_attrs or has_failed(trial)


def _read_last_value(trial: FrozenTrial) -> float | None:
    """The last value of a trial that was stopped early; None for other trials and for no number."""
    if trial.state is not OptunaState.PRUNED or trial.last_step is None or REFUSAL_KEY in trial.user_attrs:
        return None
    value = trial.intermediate_values[trial.last_step]
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class MultiObjective:
    """Objectives that are better the lower they are; one of them is the trials' value."""

    count: int = 1
    measure: Callable[[StoredTrial], Sequence[float]] = lambda outcome: ()
    """Several objectives of a complete trial; infinite where one is unknown."""


def attach_objectives(trials: Sequence[FrozenTrial], objectives: MultiObjective) -> Sequence[FrozenTrial]:
    """The trials, complete ones with all of several objectives.

    A refused or failed one that counts as complete has the worst value in every objective: a model that is
    too small must not look good. An unknown objective is the worst one too.
    """
    if objectives.count == 1:
        return trials
    complete = [trial for trial in trials if trial.state is OptunaState.COMPLETE]
    measured = {
        trial.number: objectives.measure(read_outcome(trial)) for trial in complete if not _is_worst(trial)
    }
    worst = [
        max((value for value in column if math.isfinite(value)), default=0.0)
        for column in zip(*measured.values(), strict=True)
    ] or [0.0] * objectives.count
    attached = []
    for trial in trials:
        if trial.state is OptunaState.COMPLETE:
            trial = copy(trial)
            values = zip(measured.get(trial.number, worst), worst, strict=True)
            trial.values = [value if math.isfinite(value) else bound for value, bound in values]
        attached.append(trial)
    return attached
