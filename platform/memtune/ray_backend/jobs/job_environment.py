"""The environment variables of a job: the settings listed here, and no secrets.

The dashboard shows a job's variables to everyone with the token, so only the listed variables are forwarded.
The nodes read passwords and keys from files: `~/.pgpass`, `~/.mlflow/credentials`, `~/.aws/credentials`.
"""

import os
from collections.abc import Mapping

from memtune.settings import LOCATION_VARIABLES
from memtune.storage.credentials import refuse_credentials

__all__ = [
    "FORWARDED_VARIABLES",
    "HOME_ON_HEAD",
    "build_job_environment",
    "find_local_secrets",
    "find_unset_locations",
]

HOME_ON_HEAD = "~/.memtune"
"""Default folder of a job's records on the head; Ray deletes the job's working folder."""
FORWARDED_VARIABLES = (
    "MEMTUNE_HOME",
    *LOCATION_VARIABLES,
    "MEMTUNE_CACHE",
    "MEMTUNE_CACHE_BYTES",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "MLFLOW_S3_ENDPOINT_URL",
)
"""Variables that a job receives when they are set on the client."""
SECRET_FILES_ON_NODES = {
    "PGPASSWORD": "~/.pgpass",
    "MLFLOW_TRACKING_PASSWORD": "~/.mlflow/credentials",
    "MLFLOW_TRACKING_TOKEN": "~/.mlflow/credentials",
    "AWS_SECRET_ACCESS_KEY": "~/.aws/credentials or the machine's role",
}
"""Variables that a job never receives, and the file on the nodes that replaces each."""
FOLDER_VARIABLES = ("MEMTUNE_HOME", "MEMTUNE_STORE", "MEMTUNE_STUDIES", "MEMTUNE_CACHE")
FIXED_VARIABLES = {
    "PYTHONPATH": "platform",
    # SIGINT and 60 s let a stopped driver checkpoint its open trials and record them as resumable.
    "RAY_JOB_STOP_SIGNAL": "SIGINT",
    "RAY_JOB_STOP_WAIT_TIME_S": "60",
}


def build_job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a job, selected from `environment`.

    Relative folders become absolute. A folder that starts with `~` stays as written; the head expands it.
    Raises ConfigurationError for a setting that contains a password.
    """
    forwarded = {name: environment[name] for name in FORWARDED_VARIABLES if environment.get(name)}
    for name, value in forwarded.items():
        refuse_credentials(name, value)
    resolved = {
        name: _make_absolute(value) if name in FOLDER_VARIABLES else value
        for name, value in forwarded.items()
    }
    return {"MEMTUNE_HOME": HOME_ON_HEAD, **resolved, **FIXED_VARIABLES}


def _make_absolute(folder: str) -> str:
    return folder if "://" in folder or folder.startswith("~") else os.path.abspath(folder)


def find_unset_locations(environment: Mapping[str, str]) -> list[str]:
    """The location variables without a value; the job keeps their data in MEMTUNE_HOME on the head."""
    return [name for name in LOCATION_VARIABLES if not environment.get(name)]


def find_local_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The secrets that are set on the client and not forwarded, each with its file on the nodes."""
    return {name: file for name, file in SECRET_FILES_ON_NODES.items() if environment.get(name)}
