"""What memtune uses of MLflow beyond its documented interface, seen in MLflow 3.17.2.

Each entry has its reason and what happens when MLflow changes it; tests/unit/tracking/test_compatibility.py
fails when one no longer holds.
"""

import base64
import json
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtune.objective import Objective
from memtune.storage.uris import find_sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.store.artifact.artifact_repo import ArtifactRepository

BROWSER_SETTINGS = {
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
    "mlflow.workflowType_v1": '"machine_learning"',
}
"""Entries of a browser's local storage that the pages read, as JSON.

Reason: at the first visit of a server on loopback the pages open the panel of MLflow's assistant, which takes
a quarter of the window and which `memtune ui` does not serve. An address without `workflowType` opens in the
mode stored here, by default "GenAI", which shows runs as evaluations and no registered models. Fallback: the
user closes the panel and chooses "Model training"."""
EXPERIMENT_KIND_TAG, EXPERIMENT_KIND = "mlflow.experimentKind", "custom_model_development"
"""The tag of an experiment whose kind is "Machine learning".

Reason: it is the pages' own name for the kind, and MLflow's Python package has none. The pages of 3.17 take
their mode from the address and the browser instead, see above. Fallback: pages that read the tag guess."""
MODEL_VERSIONS_TAG = "mlflow.modelVersions"
"""The tag of a logged model with the versions made of it, as JSON.

Reason: MLflow's server sets it, and a client of a store in a file does not. Fallback: the table of models
shows no versions."""
START_FRAGMENT = "#/experiments"
"""The page of all corpora, with their descriptions.

Reason: the addresses of pages are not documented, here and in the functions on fragments below. Fallback:
MLflow's first page, from which the same tables are reached by hand."""

DATABASE_REFUSAL_CODE = "BAD_REQUEST"
"""The error code for every database error other than a lost connection: two writers that insert the same
row, a connection found closed, but also a value that the database refuses. MLflow names the kind
in the message only, so such a request is retried a few times before it counts as refused. Fallback: if MLflow
changes the code, these errors count as temporary and are repeated until the store accepts them."""

OLD_IMPORT_WARNINGS = (
    "starlette.middleware.wsgi is deprecated",
    "The ``noload`` loader strategy is deprecated",
)
"""Starts of the warnings that MLflow's own imports raise. Fallback: they are printed."""

DATABASE_LOGGER = "mlflow.store.db.utils"
"""The logger of a database's errors, with their SQL and a traceback.

Reason: MLflow raises the same error, which memtune reports. Fallback: it is logged as well."""
LOCATION_COLUMNS = (
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
"""The columns of MLflow's tables with locations below those of experiments.

Reason: a home is moved as a folder, and MLflow has no call that changes a location. Fallback: none; a table
without one of them is an error of its database, before anything is changed."""


def build_server_environment(store_uri: str, artifact_folder: Path, port: int) -> dict[str, str]:
    """The settings that `mlflow server` passes to its application, which `memtune ui` runs by itself.

    Reason: `mlflow server` runs another application only from an installed entry point, and its basic-auth
    application keeps a second database and needs Flask-WTF. Artifacts are served below `artifact_folder`.
    Without telemetry and without MLflow's own job runner. Fallback: none, the guard test fails.
    """
    origins = ",".join(f"http://{host}:{port}" for host in ("127.0.0.1", "localhost"))
    return {
        "_MLFLOW_SERVER_FILE_STORE": store_uri,
        "_MLFLOW_SERVER_REGISTRY_STORE": store_uri,
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": artifact_folder.absolute().as_uri(),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_SGI_NAME": "uvicorn",
        "MLFLOW_SERVER_ALLOWED_HOSTS": f"127.0.0.1:{port},localhost:{port}",
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": origins,
        "MLFLOW_SERVER_X_FRAME_OPTIONS": "DENY",
        "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "false",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_ENABLE_WORKSPACES": "false",
        "MLFLOW_ENABLE_REMOTE_ASSISTANT": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }


SHARED_VIEW_TAG = "mlflow.sharedViewState."
"""Followed by its name: the experiment tag that holds a table's columns, order, filter and charts.

Reason: a link can open a prepared table only through a shared view. Fallback: the page opens with MLflow's
own columns."""
KNOWN_VIEW_VERSIONS = ("3.17.",)
"""Starts of the MLflow versions whose pages are known to read named views with charts."""
MAX_VIEW_CHARACTERS = 5000
"""The longest value of an experiment's tag."""


def encode_shared_view(
    title: str, table: Mapping[str, object], charts: Mapping[str, object], version: str | None
) -> str:
    """The tag's value for a table with charts, under a title in the page's list of views.

    Reason: the format is undocumented. Fallback: for another version of MLflow's pages, or None where it is
    not known, and for charts that do not fit into a tag, the table alone as plain JSON, which older versions
    read too.
    """
    if version is None or not version.startswith(KNOWN_VIEW_VERSIONS):
        return json.dumps(table)
    content = json.dumps({**table, **charts}).encode()
    state = "deflate;" + base64.b64encode(zlib.compress(content, 9)).decode()
    named = json.dumps({"name": title, "createdAt": 0, "updatedAt": 0, "state": state})
    return named if len(named) <= MAX_VIEW_CHARACTERS else json.dumps(table)


def build_charts(
    objective: Objective,
    ranking_metric: str,
    size_parameter: str,
    searched: Sequence[str],
    *,
    has_counting: bool = False,
) -> dict[str, object]:
    """The charts of a view: validation by tokens, the ranking metric by size, and the searched parameters.

    `has_counting` says that some models learn by counting; these have one point, after the whole corpus.
    Where figures compare over orders of magnitude, one early value would flatten all curves.
    Reason: the pages draw a bar per metric, for the first 10 runs, unless a view says otherwise. Fallback:
    see `encode_shared_view`.
    """
    section, wide_section = "memtune-charts", "memtune-parameters"
    shared = {"metricSectionId": section, "isGenerated": False, "deleted": False, "runsCountToCompare": 100}
    # With every setting that the pages write for one.
    lines = {
        "type": "LINE",
        "uuid": "memtune-validation",
        "displayName": f"Validation {objective} by tokens ({objective.direction} is better)",
        "metricKey": f"valid_{objective}",
        "selectedMetricKeys": [f"valid_{objective}"],
        "lineSmoothness": 0,
        "scaleType": "log" if objective.is_ratio else "linear",
        "xAxisScaleType": "log" if has_counting else "linear",
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "range": {},
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": True,
    }
    sizes: dict[str, object] = {
        "type": "SCATTER",
        "uuid": "memtune-size",
        "displayName": f"Best validation {objective} by number of parameters",
        "xaxis": {"key": size_parameter, "type": "PARAM"},
        "yaxis": {"key": ranking_metric, "type": "METRIC"},
    }
    parameters = {
        "type": "PARALLEL",
        "metricSectionId": wide_section,
        "uuid": "memtune-searched",
        "displayName": f"Searched parameters and best validation {objective}",
        "selectedParams": list(searched),
        "selectedMetrics": [ranking_metric],
        "showAllRuns": True,
    }
    charts: list[dict[str, object]] = [lines, sizes, *([parameters] if searched else [])]
    sections = [
        _describe_section(section, "memtune", is_open=True, columns=2),
        # In a narrower chart, the names of the axes cover each other.
        *([_describe_section(wide_section, "Parameters", is_open=True, columns=1)] if searched else []),
        _describe_section("memtune-model", "Model metrics"),
        _describe_section("memtune-system", "System metrics"),
    ]
    return {
        "compareRunCharts": [{**shared, **chart} for chart in charts],
        "compareRunSections": sections,
        "runsHiddenMode": "SHOW_ALL",
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
    }


def _describe_section(uuid: str, name: str, *, is_open: bool = False, columns: int = 3) -> dict[str, object]:
    return {
        "uuid": uuid,
        "name": name,
        "display": is_open,
        "isReordered": True,
        "deleted": False,
        "isGenerated": False,
        "columns": columns,
    }


def read_pages_version(tracking_uri: str) -> str | None:
    """The version of MLflow whose pages show this store: a server's, or that of this process for a file.

    Reason: `/version` is not part of the documented API. Fallback: None, which gives tables without charts.
    """
    # Imported here, as in every function below: MLflow loads for seconds; see mlflow_connection.
    import mlflow
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    if not tracking_uri.startswith(("http://", "https://")):
        return str(mlflow.__version__)
    try:
        credentials = get_default_host_creds(tracking_uri)  # type: ignore[no-untyped-call]
        answer = http_request(credentials, "/version", "GET", timeout=10)  # type: ignore[no-untyped-call]
    except Exception:  # whatever a proxy or another version does with it
        return None
    return answer.text.strip() if answer.status_code == 200 else None


def format_experiment_fragment(experiment_id: str, quoted_view: str, *, has_charts: bool = False) -> str:
    """The address, after the server's, of an experiment's table in a shared view, or of the view's charts."""
    query = f"workflowType=machine_learning&viewStateShareKey={quoted_view}"
    return f"/#/experiments/{experiment_id}/runs?{query}{'&compareRunsMode=CHART' if has_charts else ''}"


def make_version_link(model: str, version: int | str) -> str:
    """A link, within MLflow's pages, to a version in the registry."""
    return f"#/models/{model}/versions/{version}?workflowType=machine_learning"


def register_repository(scheme: str, open_repository: Callable[..., "ArtifactRepository"]) -> None:
    """Let MLflow open artifact locations of a scheme through this function, in this process.

    Reason: the documented way, an entry point of a package, needs memtune to be installed, not only
    importable. pyproject.toml has it too, for MLflow's own commands.
    """
    from mlflow.store.artifact import artifact_repository_registry

    registry: Any = artifact_repository_registry._artifact_repository_registry
    registry.register(scheme, open_repository)


def open_repository_of(
    folder: Path | None, location: str, tracking_uri: str | None, registry_uri: str | None
) -> "ArtifactRepository":
    """MLflow's access to the files of a folder here, or, without one, to a location on a server.

    Reason: the repositories that MLflow's registry of schemes returns are not documented. There is no
    fallback: the guard test fails.
    """
    from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

    if folder is not None:
        return LocalArtifactRepository(folder.as_uri())
    if location.startswith(("http:", "https:")):
        return HttpArtifactRepository(location, tracking_uri, registry_uri)  # type: ignore[no-untyped-call]
    return MlflowArtifactsRepository(location, tracking_uri, registry_uri)


def load_client_class() -> "type[MlflowClient]":
    """MLflow's client, with its store in a database, imported without the warnings of its own imports.

    Reason: MLflow imports that store at the first request, when the warnings are printed between memtune's
    lines. Fallback: they are.
    """
    with warnings.catch_warnings():
        for start in OLD_IMPORT_WARNINGS:
            warnings.filterwarnings("ignore", message=start)
        import mlflow.tracking

        with suppress(ImportError):
            import mlflow.store.tracking.sqlalchemy_store
    _make_folders_of_decoded_paths()
    return mlflow.tracking.MlflowClient


def _make_folders_of_decoded_paths() -> None:
    """Let MLflow make the parent folder of a sqlite file where SQLAlchemy opens the file.

    Reason: `sqlite:////tmp/a%3Fb/mlflow.db` is in /tmp/a?b, and MLflow 3.17 makes the folder /tmp/a%3Fb.
    Fallback: such a folder appears, and stays empty.
    """
    from mlflow.store.db import utils

    def make_parent(db_uri: str) -> None:
        path = find_sqlite_path(db_uri)
        if path is not None and path.name not in ("", ":memory:"):
            path.parent.mkdir(parents=True, exist_ok=True)

    if hasattr(utils, "_make_parent_dirs_if_sqlite"):
        utils._make_parent_dirs_if_sqlite = make_parent


def load_server_application() -> Any:
    """The ASGI application of MLflow's server.

    Reason: `mlflow server` starts it in a process of its own, where no request can be refused before MLflow
    reads it. There is no fallback: `memtune ui` ends with the import's error.
    """
    from mlflow.server.fastapi_app import app

    _make_folders_of_decoded_paths()
    return app


def is_unreachable(error: BaseException) -> bool:
    """Whether the request reached no server.

    Reason: MLflow raises the same MlflowException with the same code for this and for a server's fault; the
    exception of `requests` that it replaced tells them apart. Fallback: a message without this cause.
    """
    from requests.exceptions import ConnectionError, Timeout

    return any(isinstance(cause, ConnectionError | Timeout) for cause in iterate_causes(error))


def find_user(tracking_uri: str) -> str | None:
    """The user whose password MLflow sends to a server; None where it sends none.

    Reason: it comes from a variable or a file, and MLflow's documented interface does not tell. Fallback: a
    message without the name.
    """
    from mlflow.utils.credentials import get_default_host_creds

    found: str | None = get_default_host_creds(tracking_uri).username  # type: ignore[no-untyped-call]
    return found


def iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised from or while handling, nearest first."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
