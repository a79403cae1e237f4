"""Figures of a model on the test split, recorded with its run and its version."""

from collections.abc import Mapping
from dataclasses import dataclass

from memtune.tracking.mlflow_connection import connect, translate_mlflow_errors
from memtune.tracking.registry.model_versions import RegisteredVersion
from memtune.tracking.runs.run_commands import NO_STUDY, ROLE_TAG, STUDY_TAG, TRIAL_TAG
from memtune.tracking.runs.run_store import find_runs


@dataclass(frozen=True)
class RecordedEvaluation:
    """The run of a trial, and what an evaluation has recorded with it."""

    run_id: str
    figures: dict[str, float]
    """By name without the split, such as `perplexity`; empty before the evaluation."""


def find_evaluation(
    tracking_uri: str, experiment: str, trial: str, split: str = "test"
) -> RecordedEvaluation | None:
    """The evaluation of a trial without a study, by the trial's identity; None for a trial without a run."""
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        found = client.get_experiment_by_name(experiment)
        tags = {ROLE_TAG: "trial", STUDY_TAG: NO_STUDY, TRIAL_TAG: trial}
        runs = find_runs(client, found.experiment_id, tags) if found else []
    if not runs:
        return None
    metrics, prefix = runs[-1].data.metrics, f"{split}_"
    figures = {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}
    return RecordedEvaluation(runs[-1].info.run_id, figures)


def record_evaluation(
    tracking_uri: str,
    run_id: str,
    name: str,
    metrics: Mapping[str, float],
    version: RegisteredVersion | None = None,
) -> None:
    """Record an evaluation's figures on the model's run as metrics, and on its version as tags.

    `name` is the split, with everything else that the figures depend on: `test` gives `test_perplexity`.
    The same model has the same figures, so a repeated call changes nothing. Raises TrackingError when the
    store does not answer.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        known = client.get_run(run_id).data.metrics
        for figure, value in metrics.items():
            if version is not None:
                place = version.corpus, str(version.version)
                client.set_model_version_tag(*place, f"{name}_{figure}", str(value))
            if f"{name}_{figure}" not in known:
                client.log_metric(run_id, f"{name}_{figure}", float(value))
