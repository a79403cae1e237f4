"""The reports of trials: of named ones, and of a study over one parameter as curves.

Mirowski and Vlachos (2015), figure 2, plots two figures of the reports of a training. Beneš, Baskar and
Burget (2017), figure 3, is the best validation perplexity against the parameter; figures 4 and 5 have one
curve for each value, which joins the reports of a training: validation against training perplexity.
"""

from collections.abc import Sequence

from memtune.errors import CheckpointError, ConfigurationError, StudyError, did_you_mean
from memtune.objective import Objective
from memtune.results.loaded_models import name_study_folder
from memtune.results.study.study_trials import StudyTrial
from memtune.results.study.study_view import StudyView, open_view
from memtune.settings import Settings
from memtune.spaces import Scalar
from memtune.studies.checkpoint_store import Checkpoints
from memtune.tracking import find_trial_run, is_trial_name, load_registered
from memtune.training import Report
from memtune.trial_state import TrialState
from memtune.values import Value, flatten


class TrialReports(Value):
    """All reports of a trial, oldest first."""

    model: str
    family: str
    protocol: str
    """Protocol and task; figures compare only under one label."""
    points: tuple[Report, ...]


def read_trial_reports(name: str, settings: Settings | None = None) -> TrialReports:
    """The reports of the trial that trained a model, which is named as in `open_model`.

    Raises TrackingError for an unknown name and CheckpointError for a trial without a readable checkpoint.
    """
    settings = Settings.resolve(settings)
    run_id = name
    if not is_trial_name(name):
        run_id = load_registered(settings.tracking_uri, name, settings.home / "models").version.run_id
    run = find_trial_run(settings.tracking_uri, run_id)
    try:
        record = Checkpoints(settings.name_checkpoint_root(name_study_folder(run)), run.trial).read().record
    except CheckpointError as error:
        raise CheckpointError(f"the reports of {name} cannot be read: {error}") from None
    return TrialReports(
        model=name,
        family=record.config.model.family,
        protocol=record.config.label,
        points=tuple(record.curve),
    )


def read_accuracy_reports(names: Sequence[str], settings: Settings | None = None) -> list[TrialReports]:
    """The reports of several models, of which at least one has an accuracy in addition to a perplexity.

    Raises the errors of `read_trial_reports`, and ConfigurationError where none has both.
    """
    found = [read_trial_reports(name, settings) for name in names]
    if not any(point.valid_accuracy is not None for trial in found for point in trial.points):
        raise ConfigurationError(
            f"no report of {', '.join(names)} has an accuracy; a training has it in addition to its "
            'perplexity with task = { kind = "agreement" } or "completion" and questions in its corpus'
        )
    return found


class ParameterTrial(Value):
    """A trial of the study, and its value of the parameter."""

    value: Scalar
    family: str
    number: int
    """A repeat under another seed has that of the trial that it repeats."""
    seed: int
    is_repeat: bool = False
    state: TrialState
    tokens: int
    """At its last report."""
    best: float | None
    """Its best validation figure; None before the first validation."""
    has_diverged: bool = False
    reports: tuple[Report, ...]
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
    values = {
        trial.identity: {
            name: str(value) if isinstance(value, list) else value
            for name, value in flatten(trial.config.model_dump(mode="json"))
        }
        for trial in view.trials
    }
    if not any(parameter in found for found in values.values()):
        known = {name for found in values.values() for name in found}
        raise StudyError(
            f'no trial of {view.id} has a parameter "{parameter}"; {did_you_mean(parameter, known)}'
        )
    trials = [
        ParameterTrial(
            value=values[trial.identity][parameter],
            family=trial.family,
            number=trial.number,
            seed=trial.seed,
            is_repeat=trial.is_repeat,
            state=trial.state,
            tokens=trial.tokens,
            best=trial.figure,
            has_diverged=trial.has_diverged,
            reports=_read_reports(trial, view),
        )
        for trial in view.trials
        if parameter in values[trial.identity]
    ]
    trials.sort(
        # Numbers, then texts, then the trials that leave it unset: these do not compare with each other.
        key=lambda trial: (
            trial.value is None,
            isinstance(trial.value, str),
            trial.value or 0,
            trial.number,
            trial.seed,
        )
    )
    return ParameterCurves(
        study=view.id,
        question=view.terms.question,
        parameter=parameter,
        objective=view.objective,
        trials=tuple(trials),
    )


def _read_reports(trial: StudyTrial, view: StudyView) -> tuple[Report, ...]:
    """The reports of a trial's checkpoint up to the trial's end.

    A worker may train further than the point at which the study stops its trial; no figure of the study has
    what came after it.
    """
    try:
        points = Checkpoints(view.checkpoint_root, trial.identity).read().record.curve
    except CheckpointError:
        return ()
    is_complete = trial.state is TrialState.COMPLETE
    return tuple(point for point in points if is_complete or point.tokens <= trial.validated_tokens)
