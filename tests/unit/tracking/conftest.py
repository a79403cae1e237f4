"""A tracking store in a sqlite file, a copy for every test, and a model to register."""

import shutil
from pathlib import Path

import pytest

from memtune.models import LSTMConfig, build_model
from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import Recorder
from memtune.tracking.mlflow_connection import connect
from memtune.training import save_model
from tests.unit.tracking.registered_models import VOCABULARY, make_result, register_package


@pytest.fixture
def tracking_uri(empty_store, tmp_path):
    """The URI of a fresh store."""
    shutil.copyfile(empty_store, Path(tmp_path, "mlflow.db"))
    return make_sqlite_uri(tmp_path)


@pytest.fixture
def client(tracking_uri):
    """A client to read the store with, apart from the code under test."""
    return connect(tracking_uri)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A small untrained model, saved as training does."""
    folder = tmp_path_factory.mktemp("model")
    config = LSTMConfig()
    save_model(build_model(config, len(VOCABULARY), seed=0), folder)
    return folder


@pytest.fixture
def register(tracking_uri, model_folder):
    """A function that registers a result of a study of its own, whose run is recorded."""

    def run(loss, *, as_champion=True, **changes):
        candidate = make_result(loss, **({"study": f"study of {loss} {len(changes)}"} | changes))
        if candidate.trial == "t1":
            with Recorder(tracking_uri, "ptb") as recorder:
                recorder.start_study(candidate.study, "study", {})
                recorder.start_trial("t1", "trial", {})
        return register_package(tracking_uri, candidate, model_folder, as_champion=as_champion)

    return run
