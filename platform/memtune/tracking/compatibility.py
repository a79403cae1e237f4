"""What memtune uses of MLflow beyond its documented interface, seen in MLflow 3.17.2.

Each entry has its reason and what happens when MLflow changes it; tests/unit/tracking/test_compatibility.py
fails when one no longer holds.
"""

from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "DATABASE_REFUSAL_CODE",
    "OLD_IMPORT_WARNINGS",
    "build_server_environment",
    "comparison_fragment",
    "experiment_fragment",
    "is_unreachable",
    "shared_view_tag",
]

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

_BACKEND_STORE, _REGISTRY_STORE = "_MLFLOW_SERVER_FILE_STORE", "_MLFLOW_SERVER_REGISTRY_STORE"
_ARTIFACT_ROOT = "_MLFLOW_SERVER_ARTIFACT_ROOT"
_ARTIFACTS_DESTINATION = "_MLFLOW_SERVER_ARTIFACT_DESTINATION"
_SERVE_ARTIFACTS = "_MLFLOW_SERVER_SERVE_ARTIFACTS"
_SERVER_KIND = "_MLFLOW_SGI_NAME"


def build_server_environment(store_uri: str, artifact_folder: Path, port: int) -> dict[str, str]:
    """The settings that `mlflow server` passes to its application, which `memtune ui` runs by itself.

    Reason: `mlflow server` runs another application only from an installed entry point, and its basic-auth
    application keeps a second database and needs Flask-WTF. Artifacts are served below `artifact_folder`.
    Without telemetry and without MLflow's own job runner. Fallback: none, the guard test fails.
    """
    origins = ",".join(f"http://{host}:{port}" for host in ("127.0.0.1", "localhost"))
    return {
        _BACKEND_STORE: store_uri,
        _REGISTRY_STORE: store_uri,
        _ARTIFACT_ROOT: "mlflow-artifacts:/",
        _ARTIFACTS_DESTINATION: str(artifact_folder),
        _SERVE_ARTIFACTS: "true",
        _SERVER_KIND: "uvicorn",
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


def shared_view_tag(name: str) -> str:
    """The experiment tag that holds a table's columns, order and filter as plain JSON.

    Reason: a link can open a prepared table only through a shared view. Fallback: the page opens
    with MLflow's own columns.
    """
    return f"mlflow.sharedViewState.{name}"


def experiment_fragment(experiment_id: str, quoted_view: str) -> str:
    """The address, after the server's, of an experiment's table in a shared view."""
    query = f"workflowType=machine_learning&viewStateShareKey={quoted_view}"
    return f"/#/experiments/{experiment_id}/runs?{query}"


def comparison_fragment(quoted_runs: str, quoted_experiments: str) -> str:
    """The address, after the server's, of the page that compares runs; both lists are JSON, URL-quoted."""
    query = f"runs={quoted_runs}&experiments={quoted_experiments}&workflowType=machine_learning"
    return f"/#/compare-runs?{query}"


def is_unreachable(error: BaseException) -> bool:
    """Whether the request reached no server.

    Reason: MLflow raises the same MlflowException with the same code for this and for a server's fault; the
    exception of `requests` that it replaced tells them apart. Fallback: a message without this cause.
    """
    import requests

    return any(isinstance(cause, requests.exceptions.RequestException) for cause in iterate_causes(error))


def iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """The exception and those that it was raised from or while handling, nearest first."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__
