"""Classification of errors as transient or permanent, and errors for files that are not stores."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE
from sqlalchemy import Engine, event

from memtune.errors import TrackingError
from memtune.storage.uris import find_sqlite_path, make_sqlite_uri
from memtune.tracking import Recorder
from memtune.tracking.compatibility import EXPERIMENT_KIND_TAG
from memtune.tracking.mlflow_connection import (
    check_tracking,
    connect,
    is_database_refusal,
    is_permanent,
    open_store,
    translate_mlflow_errors,
)
from tests.cluster.ports import find_free_port
from tests.conftest import leave_disk
from tests.file_size_limit import limit_file_size
from tests.presence import require


class EmptyStore(BaseHTTPRequestHandler):
    """Answers every request as an MLflow server without experiments."""

    def do_POST(self):
        status, text = self.answer()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def answer(self) -> tuple[int, str]:
        return 200, "{}"

    do_GET = do_POST

    def log_message(self, *given):
        """Print nothing."""


class ReadOnlyStore(EmptyStore):
    """Answers as an MLflow server whose user reads an experiment and may not write it."""

    def answer(self) -> tuple[int, str]:
        if "set-experiment-tag" in self.path:
            return 403, "Permission denied"
        experiment = {"experiment_id": "1", "name": "ptb", "lifecycle_stage": "active"}
        return 200, json.dumps({"experiment": experiment} if "get-by-name" in self.path else {})


class LockedStore(EmptyStore):
    """Answers as an MLflow server that does not know the user."""

    def answer(self) -> tuple[int, str]:
        return 401, "You are not authenticated."


@contextmanager
def serve(store: type[EmptyStore], host: str = "127.0.0.1") -> Iterator[str]:
    """The address of a server that answers as a store does."""
    with HTTPServer(("127.0.0.1", 0), store) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{host}:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def closed_proxy(monkeypatch):
    """A proxy for all requests, at a port where nothing listens."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org")


@pytest.mark.usefixtures("closed_proxy")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_of_this_machine_is_reached_without_the_proxy(host):
    with serve(EmptyStore, host) as uri:
        check_tracking(uri)
    assert os.environ["NO_PROXY"].startswith("example.org,")


@pytest.mark.usefixtures("closed_proxy")
def test_an_error_behind_a_proxy_names_no_proxy():
    with pytest.raises(TrackingError, match=r"HTTP_PROXY.*add mlflow.invalid to NO_PROXY"):
        check_tracking("http://mlflow.invalid:5000")


def test_a_user_who_may_not_write_the_experiment_is_refused_with_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    fix = 'user bob of .* may not write experiment "ptb"; ask its administrator for EDIT'
    with serve(ReadOnlyStore) as uri, pytest.raises(TrackingError, match=fix):
        check_tracking(uri, "ptb")


def test_a_command_that_reads_names_the_fix_of_a_wrong_password() -> None:
    fix = r"refuses this user; keep user and password in ~/\.mlflow/credentials"
    with serve(LockedStore) as uri, pytest.raises(TrackingError, match=fix), open_store(uri) as client:
        client.search_experiments()


def test_a_command_that_reads_names_the_fix_where_no_server_answers() -> None:
    uri = f"http://127.0.0.1:{find_free_port()}"
    fix = "no tracking server answers at .*; start it"
    with pytest.raises(TrackingError, match=fix), open_store(uri) as client:
        client.search_experiments()


def test_requests_of_the_user_have_none_of_the_settings_of_memtune(
    tracking_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    before = dict(os.environ)
    check_tracking(tracking_uri)
    assert dict(os.environ) == before
    recorder = Recorder(tracking_uri, "ptb")
    with open_store(tracking_uri):
        recorder.close()
        assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0", "the other block still has them"
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert dict(os.environ) == before


def test_the_check_of_an_experiment_leaves_it_as_it_is(tracking_uri: str) -> None:
    client = connect(tracking_uri)
    client.create_experiment("ptb", tags={EXPERIMENT_KIND_TAG: "of its owner"})
    before = require(client.get_experiment_by_name("ptb"))
    check_tracking(tracking_uri, "ptb")
    assert require(client.get_experiment_by_name("ptb")).tags == before.tags
    check_tracking(tracking_uri, "unknown")
    assert client.get_experiment_by_name("unknown") is None


@pytest.mark.parametrize(
    ("error", "permanent", "refused"),
    [
        (MlflowException("no such step", INVALID_PARAMETER_VALUE), True, False),
        (MlflowException("server closed the connection", TEMPORARILY_UNAVAILABLE), False, False),
        (MlflowException("UNIQUE constraint failed: datasets.name", BAD_REQUEST), False, True),
        (ConnectionError("refused"), False, False),
        (LookupError("no run"), True, False),
    ],
    ids=["invalid value", "lost connection", "another writer", "no server", "no run"],
)
def test_an_error_is_classified_by_its_type_and_code(error, permanent, refused):
    assert (is_permanent(error), is_database_refusal(error)) == (permanent, refused)


def test_an_error_that_lists_failures_ends_with_the_last_one():
    failures = "Failures while downloading:\n##### File a #####\n[Errno 28] No space left on device"
    with (
        pytest.raises(TrackingError, match=r"downloading: \[Errno 28\] No space left on device$"),
        translate_mlflow_errors("sqlite:///store.db"),
    ):
        raise MlflowException(failures)


def make_foreign_database(path):
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE songs (title TEXT)")
    database.close()


def make_newer_database(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
    database.close()


@pytest.mark.parametrize(
    "overwrite",
    [
        lambda path: path.write_bytes(b"not a database " * 100),
        lambda path: path.write_bytes(path.read_bytes()[:5000] + b"x" * 5000),
        lambda path: (path.unlink(), make_foreign_database(path)),
        make_newer_database,
    ],
    ids=["text", "overwritten pages", "another program's tables", "a newer MLflow's schema"],
)
def test_a_file_that_is_no_store_is_named_with_the_fix(tracking_uri, overwrite):
    path = find_sqlite_path(tracking_uri)
    overwrite(path)
    with pytest.raises(TrackingError) as caught:
        check_tracking(tracking_uri)
    message = str(caught.value)
    assert str(path) in message
    assert "move the file away" in message
    assert "--resume" in message
    assert "SELECT" not in message
    assert "[SQL" not in message


def test_a_file_is_kept_where_the_system_refuses_to_use_it(tracking_uri):
    """Moving it away would lose the registered models and the trainings without a study."""
    path = require(find_sqlite_path(tracking_uri))
    connect(tracking_uri).create_experiment("ptb")
    with limit_file_size(1000), pytest.raises(TrackingError, match=r"cannot read .* keep the file"):
        check_tracking(tracking_uri, "ptb")
    lock = path.with_name(f"{path.name}.lock")
    lock.unlink()
    lock.mkdir()
    with pytest.raises(TrackingError, match=r"cannot open .* keep the file"):
        connect(tracking_uri)


def test_a_file_that_lacks_a_table_is_not_to_be_kept(tracking_uri):
    client = connect(tracking_uri)
    with closing(sqlite3.connect(require(find_sqlite_path(tracking_uri)))) as database:
        database.execute("drop table experiment_tags")
    expected = pytest.raises(TrackingError, match=r"no such table.* move the file away")
    with expected, translate_mlflow_errors(tracking_uri):
        client.search_experiments()


def test_an_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "mlflow.db").touch()
    assert connect(make_sqlite_uri(tmp_path)).search_experiments()


def test_a_store_whose_creation_was_interrupted_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow refuses a file in which it has created some of its tables."""

    def interrupt(source: object, target: object) -> None:
        raise OSError("killed")

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr("memtune.tracking.mlflow_connection.os.replace", interrupt)
        with pytest.raises(TrackingError, match="killed"):
            connect(uri)
    assert not (tmp_path / "mlflow.db").exists()
    assert connect(uri).search_experiments()


def test_a_new_store_takes_nothing_from_the_journal_of_a_removed_one(tmp_path: Path) -> None:
    """sqlite rolls such a journal into the new file."""
    removed = sqlite3.connect(tmp_path / "mlflow.db")
    removed.executescript("PRAGMA cache_size = 1; CREATE TABLE a (x)")
    with removed:
        removed.executemany("INSERT INTO a VALUES (?)", [("x" * 5000,)] * 50)
    removed.execute("UPDATE a SET x = x || 1")
    journal = (tmp_path / "mlflow.db-journal").read_bytes()
    removed.close()
    (tmp_path / "mlflow.db").unlink()
    (tmp_path / "mlflow.db-journal").write_bytes(journal)
    assert connect(make_sqlite_uri(tmp_path)).search_experiments()
    found = sqlite3.connect(tmp_path / "mlflow.db").execute("PRAGMA integrity_check").fetchall()
    assert found == [("ok",)]
    assert not (tmp_path / "mlflow.db-journal").exists()


def test_a_creation_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: object, target: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("memtune.tracking.mlflow_connection.os.replace", fail)
    with pytest.raises(TrackingError, match="No space left"):
        connect(make_sqlite_uri(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db.lock"]


@pytest.fixture
def waiting_for_the_disk() -> Iterator[None]:
    event.remove(Engine, "connect", leave_disk)
    yield
    event.listen(Engine, "connect", leave_disk)


@pytest.mark.usefixtures("waiting_for_the_disk")
def test_a_new_store_waits_for_the_disk_once_it_is_created(tmp_path: Path) -> None:
    store = connect(make_sqlite_uri(tmp_path))._tracking_client.store
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
