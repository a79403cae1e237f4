"""The reports of trials by their names: Mirowski and Vlachos (2015), figure 2, plots two of their figures."""

from collections.abc import Sequence

from memtune.errors import CheckpointError, ConfigurationError
from memtune.results.model_sources import SINGLE_TRIALS_FOLDER
from memtune.settings import Settings
from memtune.studies.checkpoint_store import Checkpoints
from memtune.tracking import NO_STUDY, find_trial_run, is_trial_name, load_registered
from memtune.training import read_checkpoint
from memtune.values import Value


class ReportPoint(Value):
    """The figures of one report; None where it has none."""

    tokens: int
    train_perplexity: float | None
    valid_perplexity: float | None
    valid_accuracy: float | None


class TrialReports(Value):
    """All reports of a trial, oldest first."""

    model: str
    family: str
    protocol: str
    """Protocol and task; figures compare only under one label."""
    points: tuple[ReportPoint, ...]


def read_trial_reports(name: str, settings: Settings | None = None) -> TrialReports:
    """The reports of the trial that trained a model, which is named as in `open_model`.

    Raises TrackingError for an unknown name and CheckpointError for a trial without a readable checkpoint.
    """
    settings = Settings.resolve(settings)
    run = find_trial_run(settings.tracking_uri, _find_run_id(name, settings))
    study = SINGLE_TRIALS_FOLDER if run.study == NO_STUDY else run.study
    try:
        return read_checkpoint_reports(name, study, run.trial, settings)
    except CheckpointError as error:
        raise CheckpointError(f"the reports of {name} cannot be read: {error}") from None


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


def read_checkpoint_reports(name: str, study: str, identity: str, settings: Settings) -> TrialReports:
    """The reports of a study's trial, by its identity.

    Raises CheckpointError without a readable checkpoint.
    """
    with Checkpoints(f"{settings.studies_folder}/{study}/checkpoints", identity).open_newest() as folder:
        record = read_checkpoint(folder).record
    points = (
        ReportPoint(
            tokens=report.tokens,
            train_perplexity=report.train_perplexity,
            valid_perplexity=report.valid_perplexity,
            valid_accuracy=report.valid_accuracy,
        )
        for report in record.curve
    )
    return TrialReports(
        model=name, family=record.config.model.family, protocol=record.config.label, points=tuple(points)
    )


def _find_run_id(name: str, settings: Settings) -> str:
    """A trial's own name, or the run of a registered version."""
    if is_trial_name(name):
        return name
    return load_registered(settings.tracking_uri, name, settings.home / "models").version.run_id
