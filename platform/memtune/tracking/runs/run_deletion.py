"""Deletion of a study's runs in MLflow."""

from collections.abc import Mapping

from memtune.tracking.mlflow_connection import connect, make_experiment_name, translate_mlflow_errors
from memtune.tracking.runs import run_entries, run_store
from memtune.tracking.runs.run_commands import (
    BEST_OF_FAMILY_TAG,
    FIGURE_TAG,
    NOTE_TAG,
    RANK_TAG,
    ROLE_TAG,
    STUDY_TAG,
    TRIAL_TAG,
)


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


NO_CONCLUSION = {RANK_TAG: "", FIGURE_TAG: "", BEST_OF_FAMILY_TAG: ""}
"""The tags of a trial of which the last conclusion says nothing."""


def record_conclusion(
    tracking_uri: str,
    corpus: str,
    study: str,
    tags: Mapping[str, str],
    tags_by_trial: Mapping[str, Mapping[str, str]],
    description: str,
) -> None:
    """Store a study's conclusion; it replaces an earlier one. Tags are stored as `memtune.<name>`.

    `tags_by_trial` has tags by the trial's identity: `rank`, `figure`, `best_of_family`. `description` is
    Markdown. Raises TrackingError when the store does not answer.
    """
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        experiment = client.get_experiment_by_name(corpus)
        runs = run_store.find_runs(client, experiment.experiment_id, {STUDY_TAG: study}) if experiment else []
        for run in runs:
            known = run.data.tags
            if known[ROLE_TAG] == "study":
                written = {**_name_tags(tags), NOTE_TAG: description}
            else:
                earlier = {name: value for name, value in NO_CONCLUSION.items() if known.get(name)}
                written = earlier | _name_tags(tags_by_trial.get(known.get(TRIAL_TAG, ""), {}))
            if written:
                client.log_batch(run.info.run_id, tags=run_entries.to_tags(written))


def _name_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"memtune.{name}": value for name, value in tags.items()}
