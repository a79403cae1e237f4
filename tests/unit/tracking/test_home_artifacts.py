"""Artifacts of a store in a file are addressed relative to it; those of other servers are refused."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from memtune.errors import TrackingError
from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import Recorder
from memtune.tracking.home_artifacts import find_local_folder
from memtune.tracking.mlflow_connection import connect
from memtune.trial_state import TrialState


def record(tracking_uri):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("t1", "lstm #0", {})
        recorder.log_files("t1", {"notes.txt": "kept"})
        recorder.finish_trial("t1", TrialState.COMPLETE)
        assert recorder.flush(60)


def make_absolute(folder):
    """Change a store to what earlier versions wrote."""
    old = (folder / "artifacts" / "ptb").as_uri()
    with closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("UPDATE experiments SET artifact_location = ? WHERE name = 'ptb'", (old,))
        database.execute(
            "UPDATE runs SET artifact_uri = replace(artifact_uri, 'mlflow-artifacts:/ptb', ?)", (old,)
        )


def read_notes(tracking_uri, target):
    client = connect(tracking_uri)
    experiment = client.get_experiment_by_name("ptb")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    target.mkdir()
    return Path(client.download_artifacts(run.info.run_id, "notes.txt", str(target))).read_text()


def test_artifacts_lie_beside_the_store_under_the_corpus_name(tracking_uri, tmp_path):
    record(tracking_uri)
    assert [path.name for path in (tmp_path / "artifacts" / "ptb").rglob("notes.txt")] == ["notes.txt"]
    assert read_notes(tracking_uri, tmp_path / "copy") == "kept"


def test_a_store_with_absolute_locations_is_changed_when_it_is_opened_elsewhere(tracking_uri, tmp_path):
    record(tracking_uri)
    make_absolute(tmp_path)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("mlflow.db", "artifacts"):
        shutil.move(tmp_path / name, moved / name)
    assert read_notes(make_sqlite_uri(moved), tmp_path / "copy") == "kept"
    assert str(tmp_path).encode() not in (moved / "mlflow.db").read_bytes()


def test_a_location_in_an_object_store_stays(tracking_uri, client):
    location = "s3://bucket/artifacts/ptb"
    experiment = client.create_experiment("ptb", artifact_location=location)
    assert connect(tracking_uri).get_experiment(experiment).artifact_location == location


def test_a_location_leads_nowhere_else(tmp_path):
    uri = make_sqlite_uri(tmp_path)
    assert find_local_folder(uri, "mlflow-artifacts:/ptb/x") == tmp_path / "artifacts" / "ptb" / "x"
    assert find_local_folder(uri, "mlflow-artifacts://host/ptb") is None
    assert find_local_folder("http://host:5000", "mlflow-artifacts:/ptb") is None
    for location in ("mlflow-artifacts:/ptb/../../etc", "mlflow-artifacts:/%2e%2e/etc"):
        with pytest.raises(TrackingError, match="leads out"):
            find_local_folder(uri, location)


class OtherServer(ThreadingHTTPServer):
    """A server that keeps the headers of every request."""

    def __init__(self) -> None:
        self.received: list[str] = []
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                received.append(str(self.headers))
                self.send_error(404)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def other_server() -> Iterator[OtherServer]:
    server = OtherServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("scheme", ["http", "mlflow-artifacts"])
def test_a_location_on_another_server_receives_no_credentials(
    tracking_uri, client, other_server, scheme, monkeypatch, tmp_path
):
    """Whoever may create an experiment chooses its location; MLflow sends the user's password there."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    location = f"{scheme}://127.0.0.1:{other_server.server_port}/files"
    experiment = client.create_experiment("ptb", artifact_location=location)
    run = client.create_run(experiment)
    with pytest.raises(TrackingError, match=rf"{location}.* is on another server than the tracking store"):
        connect(tracking_uri).download_artifacts(run.info.run_id, "notes.txt", str(tmp_path))
    assert other_server.received == []
