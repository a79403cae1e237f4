"""The way to a tracking store: a server's URL, or a sqlite file used directly.

MLflow is imported here, on first use, and made quiet and quick to answer: no telemetry, no migration
notices, no minutes of retries inside one HTTP call (the recorder repeats what failed by itself).
"""

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlparse

from filelock import FileLock

from memtune.errors import TrackingError
from memtune.imports import in_one_go

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

__all__ = [
    "check_tracking",
    "connect",
    "ensure_experiment",
    "experiment_name",
    "is_server",
    "sqlite_uri",
    "told_plainly",
]

T = TypeVar("T")

HOPELESS = {
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "NOT_FOUND",
    "ENDPOINT_NOT_FOUND",
}

UNREACHED = "failed with exception"
"""MLflow's words for a request that nobody took."""
BROKEN_OFF = ("invalid transaction", "InterfaceError", "connection")
"""In a server's refusal: it lost its own database in the middle, which MLflow reports as a bad request."""
MADE_MEANWHILE = ("UNIQUE constraint failed", "duplicate key")
"""In a refusal: another driver recorded the same dataset at once; the next time it is found there."""
DENIED = {"UNAUTHENTICATED", "PERMISSION_DENIED", "CUSTOMER_UNAUTHORIZED"}

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def sqlite_uri(folder: Path) -> str:
    """The URI of the store kept in `folder`, used when no server is named: `sqlite:////.../mlflow.db`."""
    return f"sqlite:///{folder.absolute() / 'mlflow.db'}"


def is_server(tracking_uri: str) -> bool:
    """Whether the URI names an HTTP server rather than a database used directly."""
    return urlparse(tracking_uri).scheme in ("http", "https")


def connect(tracking_uri: str) -> "MlflowClient":
    """A client of the store and its registry; a sqlite file is created when missing.

    Variables of the environment that are already set are respected. A server is not contacted yet.
    Raises TrackingError for a URI that is neither http(s) nor a database.
    """
    _prepare(tracking_uri)
    client_class = _client_class()
    try:
        with _alone(tracking_uri):
            return client_class(tracking_uri, registry_uri=tracking_uri)
    except Exception as error:
        message = f"cannot open the tracking store {tracking_uri}: {error}"
        raise TrackingError(
            f"{message}; name a server (http://host:5000) or a file (sqlite:///folder/mlflow.db)"
        ) from error


def _alone(tracking_uri: str) -> AbstractContextManager[object]:
    """One process at a time where opening may create the tables of a sqlite file."""
    path = sqlite_path(tracking_uri)
    return nullcontext() if path is None else FileLock(f"{path}.lock")


def _prepare(tracking_uri: str) -> None:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    for name in ("mlflow.store.db.utils", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    path = sqlite_path(tracking_uri)
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrackingError(f"cannot create {path.parent} for the tracking store: {error}") from error


def _client_class() -> "type[MlflowClient]":
    """MLflow's client, imported with the one warning silenced that its sqlite store raises on import."""
    with in_one_go(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The ``noload`` loader strategy is deprecated")
        import mlflow.store.tracking.sqlalchemy_store
        import mlflow.tracking
    return mlflow.tracking.MlflowClient


def sqlite_path(tracking_uri: str) -> Path | None:
    """The file behind a sqlite URI, or None for any other store."""
    prefix = "sqlite:///"
    return Path(tracking_uri.removeprefix(prefix)) if tracking_uri.startswith(prefix) else None


def check_tracking(tracking_uri: str) -> None:
    """Ask the store one question, so that a search does not start without its records.

    Raises TrackingError, within about ten seconds, when it does not answer or is not MLflow.
    """
    client = connect(tracking_uri)
    try:
        client.search_experiments(max_results=1)
    except Exception as error:
        if getattr(error, "error_code", None) in DENIED:
            raise TrackingError(
                f"the tracking server {tracking_uri} does not let this user in; keep user and password in "
                "~/.mlflow/credentials (mode 0600)"
            ) from None
        if UNREACHED in str(error):
            raise TrackingError(
                f"no tracking server answers at {tracking_uri}; start it (`memtune ui` starts one on this "
                "machine), correct MLFLOW_TRACKING_URI, or unset it to record in a file"
            ) from None
        message = f"the tracking server {tracking_uri} does not answer as MLflow does: {error}"
        raise TrackingError(
            f"{message}; start one with `memtune ui`, or leave it out to record in a file"
        ) from error


@contextmanager
def told_plainly(tracking_uri: str) -> Iterator[None]:
    """Turn what MLflow raises inside into a TrackingError that names the store."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:
        raise TrackingError(f"the tracking store {tracking_uri} failed: {error}") from error


def patiently(action: Callable[[], T], seconds: float) -> T:
    """What `action` gives, tried again for `seconds` while the store is away; then its last error."""
    end, pause = time.monotonic() + seconds, 0.1
    while True:
        try:
            return action()
        except Exception as error:
            if is_hopeless(error) or isinstance(error, TrackingError) or time.monotonic() + pause > end:
                raise
            time.sleep(pause)
            pause = min(2 * pause, 5.0)


def is_hopeless(error: Exception) -> bool:
    """Whether the store will refuse this for ever; one that is away, locked or full may come back."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        passing = any(sign in str(error) for sign in (*BROKEN_OFF, *MADE_MEANWHILE))
        return error.error_code in HOPELESS and not passing
    return isinstance(
        error, TypeError | ValueError | LookupError | AttributeError | ArithmeticError | Warning
    )


def experiment_name(corpus: str) -> str:
    """The experiment and registered model of a corpus: its name, refused where MLflow cannot take it."""
    if not corpus or any(sign in corpus for sign in "/:"):
        raise TrackingError(
            f'a corpus named "{corpus}" cannot be an experiment: use a name without "/" and ":"'
        )
    return corpus


def ensure_experiment(client: "MlflowClient", tracking_uri: str, corpus: str) -> str:
    """The id of the corpus's experiment, created or restored when needed.

    Beside a sqlite file used directly, artifacts go to the folder `artifacts/<corpus>` next to it; a server
    decides for itself.
    """
    found = client.get_experiment_by_name(corpus)
    if found is None:
        database = sqlite_path(tracking_uri)
        location = (database.parent / "artifacts" / corpus).absolute().as_uri() if database else None
        return client.create_experiment(corpus, artifact_location=location)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)
