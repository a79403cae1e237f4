"""Deletion of a study's runs in MLflow."""

from memtune.tracking.mlflow_connection import connect, make_experiment_name, translate_mlflow_errors
from memtune.tracking.runs import run_store
from memtune.tracking.runs.run_commands import STUDY_TAG

__all__ = ["delete_study_runs"]


def delete_study_runs(tracking_uri: str, corpus: str, study: str) -> int:
    """Delete the runs of a study and its trials, as MLflow's own pages do; return their number.

    `mlflow gc` removes deleted runs permanently.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        experiment = client.get_experiment_by_name(make_experiment_name(corpus))
        found = (
            run_store.find_runs(client, experiment.experiment_id, {STUDY_TAG: study}) if experiment else []
        )
        for run in found:
            client.delete_run(run.info.run_id)
    return len(found)
