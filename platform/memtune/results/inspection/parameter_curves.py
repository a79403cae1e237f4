"""A study over one parameter as curves: Beneš, Baskar and Burget (2017), figures 3, 4 and 5.

Figure 3 is the best validation perplexity against the parameter. Figures 4 and 5 have one curve for each
value, which joins the reports of a training: validation against training perplexity.
"""

from collections.abc import Mapping
from typing import Any

from memtune.errors import CheckpointError, StudyError, did_you_mean
from memtune.objective import Objective
from memtune.results.insight.study_catalogue import find_study, get_objective, number_trials
from memtune.results.inspection.trial_reports import ReportPoint, read_checkpoint_reports
from memtune.results.ranking.selection import is_rankable
from memtune.search import Outcome
from memtune.settings import Settings
from memtune.spaces import Scalar
from memtune.studies.definition.study_terms import read_stored_terms
from memtune.trial_state import TrialState
from memtune.values import Value, flatten

__all__ = ["ParameterCurves", "ParameterTrial", "collect_parameter_curves"]


class ParameterTrial(Value):
    """A trial of the study, and its value of the parameter."""

    value: Scalar
    number: int
    """A repeat under another seed has that of the trial that it repeats."""
    seed: int
    state: TrialState
    tokens: int
    """At its last report."""
    best: float | None
    """Its best validation figure; None before the first validation."""
    has_diverged: bool = False
    """Whether it has no validation that can be ranked."""
    reports: tuple[ReportPoint, ...]
    """Oldest first, up to the trial's end; none where its checkpoint is missing."""


class ParameterCurves(Value):
    """The trials of a study by one parameter."""

    study: str
    question: str
    parameter: str
    objective: Objective
    trials: tuple[ParameterTrial, ...]
    """By value and number; trials without the parameter are left out."""


def collect_parameter_curves(study: str, parameter: str, settings: Settings | None = None) -> ParameterCurves:
    """The trials and repeats of a study, by id or name, with their values of a parameter such as `model.phi`.

    Raises StudyError for an unknown study and for a parameter that no trial has.
    """
    settings = Settings.resolve(settings)
    stored = find_study(study, settings)
    objective, outcomes = get_objective(stored), [*stored.outcomes, *stored.repeats]
    values = [dict(flatten(outcome.configuration)) for outcome in outcomes]
    if not any(parameter in found for found in values):
        known = {name for found in values for name in found}
        raise StudyError(
            f'no trial of {stored.id} has a parameter "{parameter}"; {did_you_mean(parameter, known)}'
        )
    numbers = number_trials(stored)
    trials = [
        _describe_trial(outcome, numbers[outcome.identity], found, parameter, stored.id, objective, settings)
        for outcome, found in zip(outcomes, values, strict=True)
        if parameter in found
    ]
    trials.sort(key=lambda trial: (isinstance(trial.value, str), trial.value, trial.number, trial.seed))
    question = read_stored_terms(settings.studies_folder, stored.id).question
    return ParameterCurves(
        study=stored.id, question=question, parameter=parameter, objective=objective, trials=tuple(trials)
    )


def _describe_trial(
    outcome: Outcome,
    number: int,
    values: Mapping[str, Any],
    parameter: str,
    study: str,
    objective: Objective,
    settings: Settings,
) -> ParameterTrial:
    best = min(outcome.curve.values(), default=None)
    return ParameterTrial(
        value=values[parameter],
        number=number,
        seed=int(values.get("seed", 0)),
        state=outcome.state,
        tokens=max(outcome.curve, default=0),
        best=None if best is None else objective.compute_figure(best),
        has_diverged=best is not None and not is_rankable(best),
        reports=_read_reports(outcome, study, settings),
    )


def _read_reports(outcome: Outcome, study: str, settings: Settings) -> tuple[ReportPoint, ...]:
    """The reports of a trial's checkpoint up to the trial's end.

    A worker may train further than the point at which the study stops its trial; no figure of the study has
    what came after it.
    """
    try:
        points = read_checkpoint_reports(str(outcome.number), study, outcome.identity, settings).points
    except CheckpointError:
        return ()
    if outcome.state is TrialState.COMPLETE:
        return points
    end = max(outcome.curve, default=0)
    return tuple(point for point in points if point.tokens <= end)
