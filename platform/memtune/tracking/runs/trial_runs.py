"""Trials by name: `STUDY#7`, `STUDY#7 seed 1` for a repeat, or the id of a run in MLflow."""

import re
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field, ValidationError

from memtune.errors import TrackingError
from memtune.tracking.mlflow_connection import connect, find_sqlite_path, translate_mlflow_errors
from memtune.tracking.runs import run_store
from memtune.tracking.runs.run_commands import (
    CODE_TAG,
    NUMBER_TAG,
    ROLE_TAG,
    STUDY_NAME_TAG,
    STUDY_TAG,
    TRIAL_TAG,
    VALIDATED_TOKENS_TAG,
)
from memtune.values import Value

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

RUN_ID_PATTERN = re.compile(r"[0-9a-f]{32}")
TRIAL_PATTERN = re.compile(r"(?P<study>[A-Za-z0-9][A-Za-z0-9._-]*)#(?P<number>\d+(?: seed \d+)?)")


class TrialRun(Value):
    """A recorded trial."""

    model_config = ConfigDict(strict=False)  # tags are texts

    run_id: str
    corpus: str
    """The name of the run's experiment."""
    study: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    trial: str = Field(pattern=r"^[A-Za-z0-9]+$")
    """The trial's identity, which names its checkpoints. Study and trial become parts of a path, and whoever
    can write to the tracking store chooses them: so their form is checked."""
    label: str
    max_tokens: int | None
    """Tokens at its last recorded validation; None while it is open."""
    reused_from: str = ""
    """The trial of another study that has trained it; empty for one that was trained in its own."""
    code: str = ""
    """The version of the code that recorded it, with the commit of a checkout; empty in old records."""


def is_trial_name(text: str) -> bool:
    """Whether a text has the form of a trial's name or of a run's id."""
    return bool(RUN_ID_PATTERN.fullmatch(text) or TRIAL_PATTERN.fullmatch(text))


def find_trial_run(tracking_uri: str, text: str) -> TrialRun:
    """The trial with a name or a run's id; a study is named by its id, or by its name if that is unique.

    Raises TrackingError where there is no such trial, or several.
    """
    database = find_sqlite_path(tracking_uri)
    if database is not None and not database.exists():
        raise TrackingError(
            f"no trial {text}: {database} does not exist; set MEMTUNE_HOME to where it was trained"
        )
    client = connect(tracking_uri)
    with translate_mlflow_errors(tracking_uri):
        found = _find_runs(client, text)
        if len(found) != 1:
            several = ", ".join(sorted(run.data.tags[STUDY_TAG] for run in found))
            problem = (
                f"several studies have it: {several}" if found else "the tracking store has no such trial"
            )
            raise TrackingError(
                f"no trial {text}: {problem}; memtune compare --json lists trials with run_id"
            )
        (run,) = found
        experiment = client.get_experiment(run.info.experiment_id)
    return _read_trial_run(run, experiment.name)


def _read_trial_run(run: "Run", corpus: str) -> TrialRun:
    """The trial of a run. Raises TrackingError for tags that memtune does not write."""
    tags = run.data.tags
    fields = {
        "run_id": run.info.run_id,
        "corpus": corpus,
        "study": tags.get(STUDY_TAG),
        "trial": tags.get(TRIAL_TAG),
        "label": tags.get("memtune.protocol", ""),
        "max_tokens": tags.get(VALIDATED_TOKENS_TAG) or None,
        "reused_from": tags.get("memtune.reused_from", ""),
        "code": tags.get(CODE_TAG, ""),
    }
    try:
        return TrialRun.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        raise TrackingError(
            f"run {run.info.run_id} has no {problem['loc'][0]} that memtune writes: {problem['msg']}"
        ) from None


def _find_runs(client: "MlflowClient", text: str) -> list["Run"]:
    named = TRIAL_PATTERN.fullmatch(text)
    if named is None:
        return [run for run in [_get_run(client, text)] if run and run.data.tags.get(ROLE_TAG) == "trial"]
    tags = {ROLE_TAG: "trial", NUMBER_TAG: named["number"]}
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    for study_tag in (STUDY_TAG, STUDY_NAME_TAG):
        with_study = {**tags, study_tag: named["study"]}
        found = [
            run for experiment in experiments for run in run_store.find_runs(client, experiment, with_study)
        ]
        if found:
            return found
    return []


def _get_run(client: "MlflowClient", run_id: str) -> "Run | None":
    # Imported here: MLflow loads for seconds; see mlflow_connection.
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise
