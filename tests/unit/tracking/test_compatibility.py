"""Guards of what memtune uses of MLflow beyond its documented interface."""

import base64
import json
import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from memtune.objective import Objective
from memtune.tracking import compatibility
from memtune.tracking.mlflow_connection import connect, request_settings
from tests.cluster.ports import find_free_port

pytestmark = [pytest.mark.filterwarnings(f"ignore:{start}") for start in compatibility.OLD_IMPORT_WARNINGS]


def test_the_settings_of_mlflows_server_have_these_names():
    from mlflow.environment_variables import _MLFLOW_SGI_NAME
    from mlflow.server import constants

    environment = compatibility.build_server_environment("sqlite:///x.db", Path("/a"), 5000)
    assert environment[constants.BACKEND_STORE_URI_ENV_VAR] == "sqlite:///x.db"
    assert environment[constants.REGISTRY_STORE_URI_ENV_VAR] == "sqlite:///x.db"
    assert environment[constants.ARTIFACT_ROOT_ENV_VAR] == "mlflow-artifacts:/"
    assert environment[constants.ARTIFACTS_DESTINATION_ENV_VAR] == "file:///a"
    assert environment[constants.SERVE_ARTIFACTS_ENV_VAR] == "true"
    assert environment[_MLFLOW_SGI_NAME.name] == "uvicorn"


def test_mlflow_has_the_other_settings():
    from mlflow import environment_variables

    names = compatibility.build_server_environment("sqlite:///x.db", Path("/a"), 5000)
    other = {name for name in names if not name.startswith("_MLFLOW_")} - {"DO_NOT_TRACK"}
    assert other <= vars(environment_variables).keys()


def test_only_pages_of_the_own_server_may_send_requests():
    environment = compatibility.build_server_environment("sqlite:///x.db", Path("/a"), 5001)
    hosts, origins = (
        environment[name].split(",")
        for name in ("MLFLOW_SERVER_ALLOWED_HOSTS", "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS")
    )
    assert hosts == ["127.0.0.1:5001", "localhost:5001"]
    assert origins == ["http://127.0.0.1:5001", "http://localhost:5001"]


def test_mlflows_application_is_where_it_is_imported_from():
    from mlflow.server.fastapi_app import app

    assert callable(app)


def test_the_database_has_the_columns_with_locations(client, tmp_path: Path):
    store = next(tmp_path.rglob("*.db"))
    with closing(sqlite3.connect(store)) as connection:
        for table, column in compatibility.LOCATION_COLUMNS:
            names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            assert column in names, table


def test_errors_of_the_database_have_this_logger():
    from mlflow.store.db import utils

    assert utils._logger.name == compatibility.DATABASE_LOGGER


def test_a_request_that_no_server_takes_is_recognised():
    client = connect(f"http://127.0.0.1:{find_free_port()}")
    with request_settings, pytest.raises(Exception, match="API request") as caught:
        client.search_experiments(max_results=1)
    assert compatibility.is_unreachable(caught.value)
    assert not isinstance(caught.value, requests.RequestException)


def test_the_user_of_a_server_is_the_one_whose_password_mlflow_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    assert compatibility.find_user("http://127.0.0.1:5000") == "bob"


def test_a_refusal_by_the_database_has_this_code(client):
    from sqlalchemy.exc import IntegrityError

    store = client._tracking_client.store
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException) as caught, store.ManagedSessionMaker(read_only=False) as session:
        raise IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed"))
    del session
    assert caught.value.error_code == compatibility.DATABASE_REFUSAL_CODE


CHARTS: dict[str, Any] = compatibility.build_charts(
    Objective.PERPLEXITY, "best_validation", "parameters", ["model.width"]
)


def test_a_view_is_stored_in_the_form_of_mlflows_pages():
    table = {"searchFilter": "x"}
    stored = json.loads(compatibility.encode_shared_view("all trials", table, CHARTS, "3.17.2"))
    state = stored.pop("state").removeprefix("deflate;")
    assert stored == {"name": "all trials", "createdAt": 0, "updatedAt": 0}
    assert json.loads(zlib.decompress(base64.b64decode(state))) == {**table, **CHARTS}


def test_a_view_opens_with_memtunes_charts_alone():
    """The sections of MLflow's own charts, are closed; parallel coordinates have a row."""
    sections = {section["name"]: section for section in CHARTS["compareRunSections"]}
    places = {chart["type"]: chart["metricSectionId"] for chart in CHARTS["compareRunCharts"]}
    assert [name for name, section in sections.items() if section["display"]] == ["memtune", "Parameters"]
    assert sections.keys() == {"memtune", "Parameters", "Model metrics", "System metrics"}
    assert places["LINE"] == places["SCATTER"] == sections["memtune"]["uuid"]
    assert places["PARALLEL"] == sections["Parameters"]["uuid"]
    assert sections["Parameters"]["columns"] == 1


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
