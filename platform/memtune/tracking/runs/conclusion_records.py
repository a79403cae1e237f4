"""What a study concluded, on its run and on those of its trials: tags and metrics."""

import time
from collections.abc import Mapping

from memtune.tracking.mlflow_connection import connect, translate_mlflow_errors
from memtune.tracking.runs import run_entries, run_store
from memtune.tracking.runs.run_commands import ROLE_TAG, STUDY_TAG, TRIAL_TAG

__all__ = ["record_conclusion"]


def record_conclusion(
    tracking_uri: str,
    corpus: str,
    study: str,
    tags: Mapping[str, str],
    metrics: Mapping[str, float],
    tags_by_trial: Mapping[str, Mapping[str, str]],
) -> None:
    """Store a study's conclusion; it replaces an earlier one. Tags are stored as `memtune.<name>`.

    `tags_by_trial` has tags by the trial's identity. Raises TrackingError when the store does not answer.
    """
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.entities import Metric

    client, now = connect(tracking_uri), round(1000 * time.time())
    with translate_mlflow_errors(tracking_uri):
        experiment = client.get_experiment_by_name(corpus)
        runs = run_store.find_runs(client, experiment.experiment_id, {STUDY_TAG: study}) if experiment else []
        for run in runs:
            found, values = tags_by_trial.get(run.data.tags.get(TRIAL_TAG, "")), {}
            if run.data.tags[ROLE_TAG] == "study":
                found, values = tags, dict(metrics)
            if found:
                named = run_entries.to_tags({f"memtune.{name}": value for name, value in found.items()})
                written = [Metric(name, value, now, 0) for name, value in values.items()]
                client.log_batch(run.info.run_id, metrics=written, tags=named)
