"""What is worth another try."""

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE

from memtune.tracking.connection import is_hopeless


@pytest.mark.parametrize(
    ("message", "code", "hopeless"),
    [
        ("the value is too long", BAD_REQUEST, True),
        ("no such step", INVALID_PARAMETER_VALUE, True),
        ("server closed the connection unexpectedly", TEMPORARILY_UNAVAILABLE, False),
        ("Can't reconnect until invalid transaction is rolled back.", BAD_REQUEST, False),
        ("(psycopg.InterfaceError) the connection is closed", BAD_REQUEST, False),
        ("(sqlite3.IntegrityError) UNIQUE constraint failed: datasets.name", BAD_REQUEST, False),
        ("(psycopg.errors.UniqueViolation) duplicate key value violates", BAD_REQUEST, False),
    ],
)
def test_a_server_in_passing_trouble_is_asked_again_and_one_that_refuses_is_not(message, code, hopeless):
    assert is_hopeless(MlflowException(message, error_code=code)) is hopeless
