"""Guards of what memtune uses of MLflow beyond its documented interface."""

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
