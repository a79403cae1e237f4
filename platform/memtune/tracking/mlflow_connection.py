"""Connections to a tracking store: a server's URL, or a sqlite file used directly.

MLflow is imported here, on first use, and used with settings for few messages and fast errors: no telemetry,
no migration notices, no retries within one HTTP request (the recorder retries by itself).
"""

import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlparse

from filelock import FileLock

from memtune.errors import TrackingError, explain_system_error
from memtune.gc_pause import pause_gc
from memtune.retry import Backoff, retry
from memtune.settings import bypass_proxy_for_loopback, explain_proxy
from memtune.storage.local_files import open_scratch_folder
from memtune.storage.uris import SQLITE_PREFIX, find_sqlite_path, make_path_uri
from memtune.tracking import compatibility, home_artifacts
from memtune.tracking.compatibility import EXPERIMENT_KIND_TAG, iterate_causes

if TYPE_CHECKING:
    from mlflow.entities import Experiment
    from mlflow.store.entities import PagedList
    from mlflow.tracking import MlflowClient

T = TypeVar("T")

MEMORY = Path("/dev/shm")
"""A folder in memory, on Linux."""
PERMANENT_ERROR_CODES = {
    "INVALID_PARAMETER_VALUE",
    "RESOURCE_DOES_NOT_EXIST",
    "NOT_FOUND",
    "ENDPOINT_NOT_FOUND",
}
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.1, 5.0
"""Seconds between two attempts to reach an unavailable store."""
NOT_FOUND_CODES = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}
UNKNOWN_USER_CODES = {"UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"}
PERMISSION_DENIED = "PERMISSION_DENIED"

REBUILD_HINT = (
    "move the file away and repeat the command; `memtune search STUDY.toml --resume` then records every "
    "trial of that study again and registers its best model"
)

KEEP_HINT = (
    "keep the file: free space on its disk, permit writing or end what locks it, and repeat the command"
)

OWNER_HINT = (
    "a home belongs to one user: set MEMTUNE_HOME to a folder of your own; users share results through an "
    "MLflow server and PostgreSQL"
)

_ENVIRONMENT_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class _RequestSettings(ContextDecorator):
    """MLflow has `_ENVIRONMENT_DEFAULTS` in the block; it reads them at each request.

    Variables that are already set keep their values. Blocks of several threads may overlap: the last one
    removes what the first has added, so that the user's own requests to MLflow have none of it.
    """

    def __init__(self) -> None:
        self._lock, self._blocks, self._added = threading.Lock(), 0, dict[str, str]()

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._added = {k: v for k, v in _ENVIRONMENT_DEFAULTS.items() if k not in os.environ}
                os.environ.update(self._added)
            self._blocks += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                for name in self._added:
                    os.environ.pop(name, None)


request_settings = _RequestSettings()


def is_server(tracking_uri: str) -> bool:
    """Whether the URI names an HTTP server rather than a database used directly."""
    return urlparse(tracking_uri).scheme in ("http", "https")


@request_settings
def connect(tracking_uri: str) -> "MlflowClient":
    """A client of the store and its registry, for requests within `request_settings`.

    A sqlite file is created when missing; a server is not contacted yet. Raises TrackingError for a URI that
    is neither http(s) nor a database, and for a file that is not a database of this version of MLflow.
    """
    bypass_proxy_for_loopback()
    for name in ("alembic", "mlflow.store.model_registry.abstract_store"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(compatibility.DATABASE_LOGGER).setLevel(logging.CRITICAL)
    path = find_sqlite_path(tracking_uri)
    if path is not None and path.exists():
        check_sqlite_file(path)
    with pause_gc():
        client_class = compatibility.load_client_class()
    for scheme in home_artifacts.SERVER_SCHEMES:
        compatibility.register_repository(scheme, home_artifacts.open_repository)
    try:
        # A file in a folder that this user may only read is read without a lock: nothing is created there.
        if path is None or (path.exists() and not os.access(path.parent, os.W_OK, effective_ids=True)):
            return client_class(tracking_uri, registry_uri=tracking_uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        # One process at a time where opening may create the tables.
        with FileLock(f"{path}.lock"):
            _create_sqlite_file(path, client_class)
            home_artifacts.make_locations_relative(path)
            return client_class(tracking_uri, registry_uri=tracking_uri)
    except PermissionError as error:
        raise TrackingError(f"cannot use {error.filename}: {error.strerror}; {OWNER_HINT}") from None
    except Exception as error:
        if path is not None and path.exists():
            raise TrackingError(
                f"MLflow cannot open {path} ({summarize_error(error)}); {_choose_hint(error)}"
            ) from error
        raise TrackingError(
            f"cannot open the tracking store {tracking_uri}: {summarize_error(error)}; name a server "
            "(http://host:5000) or a file (sqlite:///folder/mlflow.db)"
        ) from error


def _create_sqlite_file(path: Path, client_class: "type[MlflowClient]") -> None:
    """Create a missing sqlite file in memory; a copy takes its place when its tables are complete.

    MLflow commits each of about 60 migrations on its own, which on a disk takes seconds, and refuses a file
    in which one was interrupted.
    """
    if path.exists():
        return
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    with open_scratch_folder(memory) as folder, open_scratch_folder(path.parent) as near:
        # In a folder of its own: MLflow keeps its connection to a URI and would not create the tables again.
        made, draft = folder / path.name, near / path.name
        uri = make_path_uri(SQLITE_PREFIX, made)
        client_class(uri, registry_uri=uri)
        shutil.copyfile(made, draft)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        # sqlite would roll the journal of a file that was removed into the new one.
        for suffix in ("journal", "wal", "shm"):
            path.with_name(f"{path.name}-{suffix}").unlink(missing_ok=True)
        os.replace(draft, path)


def check_sqlite_file(path: Path) -> None:
    """Raise TrackingError when the file is not a database of MLflow; an empty file is accepted.

    MLflow itself answers with the SQL statement that failed.
    """
    try:
        # Writable: after a killed writer, sqlite first rolls back what its journal holds.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            tables = {name for (name,) in found}
    except sqlite3.OperationalError as error:
        raise TrackingError(f"cannot read {path}: {error}; {OWNER_HINT}") from None
    except sqlite3.DatabaseError as error:
        raise TrackingError(f"{path} is damaged: {error}; {REBUILD_HINT}") from None
    if tables and not {"alembic_version", "experiments"} <= tables:
        raise TrackingError(f"{path} is a database of another program, not of MLflow; {REBUILD_HINT}")


def summarize_error(error: BaseException) -> str:
    """The first line of an error, without the SQL statement that MLflow appends; the last one of a list."""
    for cause in iterate_causes(error):
        if isinstance(cause, sqlite3.Error):
            return str(cause)
    first, *others = explain_system_error(error).splitlines() or [""]
    return f"{first} {others[-1]}" if others and first.endswith(":") else first


def _choose_hint(error: BaseException) -> str:
    """What helps against an error about a file: another file only where the system is not its cause."""
    for cause in iterate_causes(error):
        code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        is_refusal = isinstance(cause, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR
        if is_refusal or isinstance(cause, OSError):
            return KEEP_HINT
    return REBUILD_HINT  # also for SQLITE_ERROR, such as a table that is missing


@request_settings
def check_tracking(tracking_uri: str, corpus: str | None = None) -> None:
    """Send the store one request, so that a search does not start without its records.

    With a corpus, check that this user may write its experiment, where it exists. Raises TrackingError,
    within about ten seconds, when the store does not answer, is not MLflow, or refuses the user.
    """
    client = connect(tracking_uri)
    try:
        client.search_experiments(max_results=1)
        if corpus is not None:
            _check_experiment_is_writable(client, tracking_uri, corpus)
    except TrackingError:
        raise
    except Exception as error:
        if explanation := _explain_server_error(tracking_uri, error):
            raise TrackingError(explanation) from None
        if path := find_sqlite_path(tracking_uri):
            raise TrackingError(
                f"MLflow cannot read {path} ({summarize_error(error)}); {_choose_hint(error)}"
            ) from error
        raise TrackingError(
            f"the tracking server {tracking_uri} does not answer as MLflow does: {summarize_error(error)}; "
            f"correct MLFLOW_TRACKING_URI{explain_proxy(tracking_uri)}"
        ) from error


def _check_experiment_is_writable(client: "MlflowClient", tracking_uri: str, corpus: str) -> None:
    """Set the kind of an experiment to what it is. Raises TrackingError where the user may not write it."""
    try:
        experiment = client.get_experiment_by_name(corpus)
        if experiment is not None and experiment.lifecycle_stage == "active":
            kind = experiment.tags.get(EXPERIMENT_KIND_TAG) or compatibility.EXPERIMENT_KIND
            client.set_experiment_tag(experiment.experiment_id, EXPERIMENT_KIND_TAG, kind)
    except Exception as error:
        if getattr(error, "error_code", None) != PERMISSION_DENIED:
            raise
        raise TrackingError(
            f"user {compatibility.find_user(tracking_uri)} of the tracking server {tracking_uri} may not "
            f'write experiment "{corpus}"; ask its administrator for EDIT on the experiment and on the '
            "registered model of that name"
        ) from None


def _explain_server_error(tracking_uri: str, error: BaseException) -> str | None:
    """Why no server answers, or why it refuses the user, and the fix; None for another error."""
    code, proxy = getattr(error, "error_code", None), explain_proxy(tracking_uri)
    if code in UNKNOWN_USER_CODES:
        return (
            f"the tracking server {tracking_uri} refuses this user; keep user and password in "
            "~/.mlflow/credentials (mode 0600), or set MLFLOW_TRACKING_TOKEN to the token of `memtune ui`"
            f"{proxy}"
        )
    if code == PERMISSION_DENIED:
        return (
            f"the tracking server {tracking_uri} does not permit this request: {summarize_error(error)}; its "
            f"administrator grants permissions to users{proxy}"
        )
    if compatibility.is_unreachable(error):
        return (
            f"no tracking server answers at {tracking_uri}; start it, or correct MLFLOW_TRACKING_URI, and "
            f"repeat the command{proxy}"
        )
    return None


@contextmanager
def translate_mlflow_errors(tracking_uri: str) -> Iterator[None]:
    """Turn what MLflow raises inside into a TrackingError that names the store."""
    # Imported here: MLflow loads for seconds, which commands without tracking need not wait for.
    from mlflow.exceptions import MlflowException

    try:
        yield
    except (MlflowException, OSError) as error:
        if explanation := _explain_server_error(tracking_uri, error):
            raise TrackingError(explanation) from error
        causes = [cause for cause in iterate_causes(error) if isinstance(cause, sqlite3.DatabaseError)]
        if any(not isinstance(cause, sqlite3.OperationalError) for cause in causes):
            path = find_sqlite_path(tracking_uri) or tracking_uri
            raise TrackingError(f"{path} is damaged: {summarize_error(error)}; {REBUILD_HINT}") from error
        hint = f"; {_choose_hint(error)}" if causes else explain_proxy(tracking_uri)
        raise TrackingError(
            f"the tracking store {tracking_uri} failed: {summarize_error(error)}{hint}"
        ) from error


def has_store(tracking_uri: str) -> bool:
    """Whether the file of a store exists, which opening it would create; True for a server."""
    path = find_sqlite_path(tracking_uri)
    return path is None or path.exists()


@contextmanager
def open_store(tracking_uri: str) -> Iterator["MlflowClient"]:
    """A client of the store; its errors in the block become TrackingErrors. Raises those of `connect`."""
    with request_settings:
        client = connect(tracking_uri)
        with translate_mlflow_errors(tracking_uri):
            yield client


def find_or_none(request: Callable[[], T]) -> T | None:
    """The answer to a request for one entry; None where the store has no such entry."""
    from mlflow.exceptions import MlflowException

    try:
        return request()
    except MlflowException as error:
        if error.error_code in NOT_FOUND_CODES:
            return None
        raise


def read_pages(read_page: "Callable[[str | None], PagedList[T]]") -> list[T]:
    """All entries of a search, whose pages are read by the token of the page before."""
    page = read_page(None)
    found = list(page)
    while page.token:
        page = read_page(page.token)
        found.extend(page)
    return found


def retry_while_unavailable(action: Callable[[], T]) -> T:
    """The result of `action`, retried for a minute while the store is unavailable; then raises its error."""
    return retry(
        action,
        is_transient=lambda error: not (is_permanent(error) or isinstance(error, TrackingError)),
        next_pause=Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS).next_pause,
        timeout_seconds=60.0,
    )


def is_permanent(error: Exception) -> bool:
    """Whether the store refuses the request permanently; an unreachable, locked or full one may recover."""
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in PERMANENT_ERROR_CODES
    refusals = TypeError | ValueError | LookupError | AttributeError | ArithmeticError | Warning
    return isinstance(error, refusals)


def is_database_refusal(error: Exception) -> bool:
    """Whether the store's database refused the request, permanently or because of a concurrent writer.

    Two drivers that record the same dataset at the same time get this once; a retry finds the row.
    """
    from mlflow.exceptions import MlflowException

    return isinstance(error, MlflowException) and error.error_code == compatibility.DATABASE_REFUSAL_CODE


def make_experiment_name(corpus: str) -> str:
    """The name of a corpus's experiment and registered model, which is the corpus's own.

    Raises TrackingError for a name that MLflow does not allow.
    """
    if not corpus or any(sign in corpus for sign in "/:\\") or corpus in (".", ".."):
        raise TrackingError(
            f'a corpus named "{corpus}" cannot be an experiment: use a name without "/" and ":"'
        )
    return corpus


def ensure_experiment(client: "MlflowClient", tracking_uri: str, corpus: str) -> str:
    """The id of the corpus's experiment, created or restored when needed.

    With a sqlite file used directly, artifacts go to the folder `artifacts/<corpus>` next to it; a server
    decides for itself.
    """
    found = client.get_experiment_by_name(corpus)
    if found is None:
        location = home_artifacts.make_relative_location(corpus) if find_sqlite_path(tracking_uri) else None
        tags = {EXPERIMENT_KIND_TAG: compatibility.EXPERIMENT_KIND}
        return client.create_experiment(corpus, artifact_location=location, tags=tags)
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    set_experiment_kind(client, found)
    return str(found.experiment_id)


def set_experiment_kind(client: "MlflowClient", experiment: "Experiment") -> None:
    """Let MLflow's pages show an experiment as machine learning, unless it has a kind already."""
    if not experiment.tags.get(EXPERIMENT_KIND_TAG):
        kind = compatibility.EXPERIMENT_KIND
        client.set_experiment_tag(experiment.experiment_id, EXPERIMENT_KIND_TAG, kind)
