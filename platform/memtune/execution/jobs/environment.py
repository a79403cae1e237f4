"""The environment of a job: settings by name, and no secret.

The dashboard shows a job's variables to everyone with the token, so only those named here travel. Passwords
and keys are files of the nodes: `~/.pgpass`, `~/.mlflow/credentials`, `~/.aws/credentials`.
"""

import os
from collections.abc import Mapping

from memtune.execution.passwords import refuse_password
from memtune.execution.settings import PLACES

__all__ = ["HOME_ON_HEAD", "SETTINGS", "job_environment", "secrets_left_here", "unset_places"]

HOME_ON_HEAD = "~/.memtune"
"""Where a job keeps its records on the head unless told otherwise; its own folder does not last."""
SETTINGS = (
    "MEMTUNE_HOME",
    *PLACES,
    "MEMTUNE_CACHE",
    "MEMTUNE_CACHE_BYTES",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "MLFLOW_S3_ENDPOINT_URL",
)
"""What is handed on where it is set."""
SECRETS = {
    "PGPASSWORD": "~/.pgpass",
    "MLFLOW_TRACKING_PASSWORD": "~/.mlflow/credentials",
    "MLFLOW_TRACKING_TOKEN": "~/.mlflow/credentials",
    "AWS_SECRET_ACCESS_KEY": "~/.aws/credentials or the machine's role",
}
"""What is never handed on, and where the cluster's nodes find it instead."""
FOLDERS = ("MEMTUNE_HOME", "MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_CACHE")
ALWAYS = {
    "PYTHONPATH": "platform",
    # A stopped job ends in order: trials are left to a resume and told so.
    "RAY_JOB_STOP_SIGNAL": "SIGINT",
    "RAY_JOB_STOP_WAIT_TIME_S": "60",
}


def job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables a job is given out of `environment`.

    Relative folders become absolute; one that starts with `~` is the head's. Raises ConfigurationError for a
    setting that holds a password.
    """
    given = {name: environment[name] for name in SETTINGS if environment.get(name)}
    for name, value in given.items():
        refuse_password(name, value)
    placed = {name: _placed(value) if name in FOLDERS else value for name, value in given.items()}
    return {"MEMTUNE_HOME": HOME_ON_HEAD, **placed, **ALWAYS}


def _placed(folder: str) -> str:
    return folder if "://" in folder or folder.startswith("~") else os.path.abspath(folder)


def unset_places(environment: Mapping[str, str]) -> list[str]:
    """The places that nothing names: they will be in the job's home, on the head alone."""
    return [name for name in PLACES if not environment.get(name)]


def secrets_left_here(environment: Mapping[str, str]) -> dict[str, str]:
    """The secrets that are set here and stay here, each with the file that stands for it on the nodes."""
    return {name: file for name, file in SECRETS.items() if environment.get(name)}
