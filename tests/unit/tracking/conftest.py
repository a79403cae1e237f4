"""A tracking store in a sqlite file, created once and copied for every test."""

import shutil
from pathlib import Path

import pytest

from memtune.tracking.mlflow_connection import connect, sqlite_uri


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """A folder with a migrated, empty sqlite store; making one takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    connect(sqlite_uri(folder))
    return folder


@pytest.fixture
def tracking_uri(empty_store, tmp_path):
    """The URI of a fresh store."""
    shutil.copyfile(empty_store / "mlflow.db", Path(tmp_path, "mlflow.db"))
    return sqlite_uri(tmp_path)


@pytest.fixture
def client(tracking_uri):
    """A client to read the store with, apart from the code under test."""
    return connect(tracking_uri)
