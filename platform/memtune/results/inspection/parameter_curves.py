"""A study over one parameter as curves: Beneš, Baskar and Burget (2017), figures 3, 4 and 5.

Figure 3 is the best validation perplexity against the parameter. Figures 4 and 5 have one curve for each
value, which joins the reports of a training: validation against training perplexity.
"""

from memtune.errors import CheckpointError, StudyError, did_you_mean
from memtune.objective import Objective
from memtune.results.inspection.trial_reports import ReportPoint, read_checkpoint_reports
from memtune.results.ranking.selection import is_rankable
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView, open_view
from memtune.settings import Settings
from memtune.spaces import Scalar
from memtune.trial_state import TrialState
from memtune.values import Value, flatten


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
    view = open_view(study, settings)
    values = {trial.identity: dict(flatten(trial.config.model_dump(mode="json"))) for trial in view.trials}
    if not any(parameter in found for found in values.values()):
        known = {name for found in values.values() for name in found}
        raise StudyError(
            f'no trial of {view.id} has a parameter "{parameter}"; {did_you_mean(parameter, known)}'
        )
    trials = [
        _describe_trial(trial, values[trial.identity][parameter], view)
        for trial in view.trials
        if parameter in values[trial.identity]
    ]
    trials.sort(key=lambda trial: (isinstance(trial.value, str), trial.value, trial.number, trial.seed))
    return ParameterCurves(
        study=view.id,
        question=view.terms.question,
        parameter=parameter,
        objective=view.objective,
        trials=tuple(trials),
    )


def _describe_trial(trial: StudyTrial, value: Scalar, view: StudyView) -> ParameterTrial:
    return ParameterTrial(
        value=value,
        number=trial.number,
        seed=trial.seed,
        state=trial.state,
        tokens=trial.tokens,
        best=trial.figure,
        has_diverged=trial.cost is not None and not is_rankable(trial.cost),
        reports=_read_reports(trial, view),
    )


def _read_reports(trial: StudyTrial, view: StudyView) -> tuple[ReportPoint, ...]:
    """The reports of a trial's checkpoint up to the trial's end.

    A worker may train further than the point at which the study stops its trial; no figure of the study has
    what came after it.
    """
    try:
        points = read_checkpoint_reports(trial.name, view.id, trial.identity, view.settings).points
    except CheckpointError:
        return ()
    if trial.state is TrialState.COMPLETE:
        return points
    return tuple(point for point in points if point.tokens <= trial.tokens)
