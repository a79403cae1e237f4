"""Guards of what memtune uses of MLflow beyond its documented interface."""

import json
import os
from pathlib import Path

import pytest
import requests

from memtune.tracking import compatibility
from memtune.tracking.mlflow_connection import connect
from tests.cluster.servers import find_free_port

pytestmark = [pytest.mark.filterwarnings(f"ignore:{start}") for start in compatibility.OLD_IMPORT_WARNINGS]


def test_the_settings_of_mlflows_server_have_these_names():
    from mlflow.environment_variables import _MLFLOW_SGI_NAME
    from mlflow.server import constants

    environment = compatibility.build_server_environment("sqlite:///x.db", Path("/a"), 5000)
    assert environment[constants.BACKEND_STORE_URI_ENV_VAR] == "sqlite:///x.db"
    assert environment[constants.REGISTRY_STORE_URI_ENV_VAR] == "sqlite:///x.db"
    assert environment[constants.ARTIFACT_ROOT_ENV_VAR] == "mlflow-artifacts:/"
    assert environment[constants.ARTIFACTS_DESTINATION_ENV_VAR] == "/a"
    assert environment[constants.SERVE_ARTIFACTS_ENV_VAR] == "true"
    assert environment[_MLFLOW_SGI_NAME.name] == "uvicorn"


def test_mlflow_has_the_other_settings():
    from mlflow import environment_variables

    names = compatibility.build_server_environment("sqlite:///x.db", Path("/a"), 5000)
    public = {name for name in names if name.startswith("MLFLOW_")}
    assert public <= vars(environment_variables).keys()


def test_mlflows_application_is_where_it_is_imported_from():
    from mlflow.server.fastapi_app import app

    assert callable(app)


def test_a_request_that_no_server_takes_is_recognised():
    client = connect(f"http://127.0.0.1:{find_free_port()}")
    with pytest.raises(Exception, match="API request") as caught:
        client.search_experiments(max_results=1)
    assert compatibility.is_unreachable(caught.value)
    assert not isinstance(caught.value, requests.RequestException)


def test_a_refusal_by_the_database_has_this_code(client):
    from sqlalchemy.exc import IntegrityError

    store = client._tracking_client.store
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException) as caught, store.ManagedSessionMaker(read_only=False) as session:
        raise IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed"))
    del session
    assert caught.value.error_code == compatibility.DATABASE_REFUSAL_CODE


def read_scripts():
    """The scripts of MLflow's pages."""
    import mlflow

    folder = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in folder.glob("*.js"))


def test_the_pages_read_the_views_that_memtune_writes():
    """Named views, their columns and charts, and the entry that keeps the assistant's panel closed."""
    scripts = read_scripts()
    for part in (
        '"mlflow.sharedViewState."',
        "Invalid saved-view envelope",
        '"deflate;"',
        '"selectedColumns","columnOrder","columnWidths"',
        '"compareRunCharts","compareRunSections"',
        "runDateAndNestInfo",
        '"mlflow.assistant.fab.autoOpenedOnFirstLoad",version:1',
    ):
        assert part in scripts, part


def test_the_installed_pages_are_of_a_version_whose_views_are_known(tracking_uri):
    version = compatibility.read_pages_version(tracking_uri)
    assert version is not None
    assert version.startswith(compatibility.KNOWN_VIEW_VERSIONS)


def test_a_view_that_is_too_long_for_a_tag_has_no_charts():
    charts = {"compareRunCharts": [{"uuid": os.urandom(4000).hex()}]}
    stored = json.loads(compatibility.encode_shared_view("t", {"searchFilter": "x"}, charts, "3.17.2"))
    assert stored == {"searchFilter": "x"}


def test_mlflow_opens_locations_of_a_home_through_memtune(client):
    from mlflow.store.artifact.artifact_repository_registry import get_registered_artifact_repositories

    from memtune.tracking.home_artifacts import SCHEME, open_repository

    assert get_registered_artifact_repositories()[SCHEME] is open_repository


def test_the_tag_of_a_models_versions_has_this_name():
    from mlflow.utils.mlflow_tags import MLFLOW_MODEL_VERSIONS

    assert compatibility.MODEL_VERSIONS_TAG == MLFLOW_MODEL_VERSIONS
