"""The recorder with real MLflow servers that are killed and restarted."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from memtune.errors import TrackingError
from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import Recorder, check_tracking, read_leaderboard
from memtune.tracking.mlflow_connection import connect
from memtune.tracking.mlflow_ui import start_server
from memtune.trial_state import TrialState
from tests.cluster.poll import TIMEOUT_SECONDS, poll_until
from tests.cluster.ports import find_free_port
from tests.presence import require

pytestmark = pytest.mark.cluster

TOKEN = "t" * 43


@pytest.fixture(autouse=True)
def token(monkeypatch):
    """Make clients send the token of the tests' servers."""
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", TOKEN)


class Server:
    """An MLflow server on loopback over an SQLite file; it can be killed and restarted on the same port."""

    def __init__(self, folder):
        self.folder = folder
        self.port = find_free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        self.process = start_server(make_sqlite_uri(self.folder), self.port, TOKEN)
        self.wait()

    def wait(self):
        """Wait until the server answers."""
        wait_for_health(self.uri, self.process)

    def is_up(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL to the server and its workers, which share its process group."""
        process = require(self.process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_health(uri, process):
    """Wait until the server of a running process answers."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{uri}/health", timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, "the process of the MLflow server ended"
            time.sleep(0.1)
    pytest.fail("the MLflow server did not answer within 120 s")


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory, empty_store):
    folder = tmp_path_factory.mktemp("store")
    shutil.copy(empty_store, folder)
    running = Server(folder)
    yield running
    if running.is_up():
        running.kill()


@pytest.fixture
def server(shared_server):
    """A running server; tests share it, each with its own experiment."""
    if not shared_server.is_up():
        shared_server.start()
    return shared_server


@pytest.fixture
def corpus(request):
    """The name of the experiment of this test."""
    return request.node.name


@pytest.fixture
def unused_uri():
    """An address without a server."""
    return f"http://127.0.0.1:{find_free_port()}"


def make_report(tokens):
    return {"tokens": tokens, "train_perplexity": 1e6 / tokens, "valid_perplexity": 2e6 / tokens}


def read_steps(uri, corpus, metric="valid_perplexity"):
    """The steps of the only trial of the experiment, in the store's order; none before it starts."""
    client = connect(uri)
    experiment = client.get_experiment_by_name(corpus)
    if experiment is None:
        return []
    runs = client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'trial'")
    assert len(runs) <= 1
    return [m.step for run in runs for m in client.get_metric_history(run.info.run_id, metric)]


class Training(threading.Thread):
    """Reports step after step until `end`."""

    def __init__(self, recorder):
        super().__init__(daemon=True)  # a failed test does not wait for it
        self.seconds = []
        """Of each call of the recorder."""
        self._recorder, self._is_over = recorder, threading.Event()

    def run(self):
        for step in itertools.count(1):
            started = time.perf_counter()
            self._recorder.log_reports("t1", [make_report(step)])
            self.seconds.append(time.perf_counter() - started)
            if self._is_over.wait(0.02):
                return

    def end(self):
        self._is_over.set()
        self.join()


def test_a_killed_server_neither_loses_nor_duplicates_a_metric(server, corpus, caplog):
    def list_warnings():
        return [record for record in caplog.records if "tracking is unavailable" in record.message]

    with Recorder(server.uri, corpus) as recorder:
        recorder.start_trial("t1", "trial", {})
        training = Training(recorder)
        training.start()
        poll_until(lambda: len(read_steps(server.uri, corpus)) >= 20, "the first steps")
        server.kill()
        killed = time.perf_counter()
        poll_until(list_warnings, "the warning of the outage")
        during = len(training.seconds)
        poll_until(lambda: len(training.seconds) >= during + 20, "reports during the outage")
        server.start()
        outage_seconds = time.perf_counter() - killed
        training.end()
        recorder.finish_trial("t1", TrialState.COMPLETE)
        assert recorder.flush(60)
    assert "was not recorded" not in caplog.text
    assert read_steps(server.uri, corpus) == list(range(1, len(training.seconds) + 1))
    assert len(list_warnings()) == 1
    assert max(training.seconds) < outage_seconds, "a report waited for the server"


def test_a_study_may_start_before_its_server(server, corpus):
    server.kill()
    with Recorder(server.uri, corpus) as recorder:
        recorder.start_study("s1", "study", {"sampler": "tpe"})
        recorder.start_trial("t1", "trial", {"width": 1})
        recorder.log_reports("t1", [make_report(1), make_report(2)])
        server.start()
        assert recorder.flush(60)
    assert read_steps(server.uri, corpus) == [1, 2]


def test_closing_a_recorder_that_cannot_deliver_returns_false_in_time(unused_uri):
    recorder = Recorder(unused_uri, "ptb")
    recorder.start_trial("t1", "trial", {})
    started = time.monotonic()
    assert recorder.close(0.5) is False
    assert time.monotonic() - started < 5


DRIVER = """
import os, signal, sys
from memtune.tracking import Recorder
recorder = Recorder(*sys.argv[1:])
recorder.start_study("s1", "study", {})
recorder.start_trial("t1", "trial", {"width": 1})
recorder.log_reports("t1", [{"tokens": t, "valid_perplexity": 2e6 / t} for t in range(1, 51)])
assert recorder.flush(60)
recorder.log_reports("t1", [{"tokens": t, "valid_perplexity": 2e6 / t} for t in range(51, 5001)])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_driver_killed_while_it_records_resumes_without_duplicates(server, corpus, caplog):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    killed = subprocess.run([sys.executable, "-c", DRIVER, server.uri, corpus], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    with Recorder(server.uri, corpus) as recorder:
        recorder.start_study("s1", "study", {})
        recorder.reconcile({})
        recorder.start_trial("t1", "trial", {"width": 1})
        recorder.log_reports("t1", [make_report(t) for t in range(1, 5001)])
        recorder.finish_trial("t1", TrialState.COMPLETE)
        assert recorder.flush(120)
    assert "was not recorded" not in caplog.text
    assert read_steps(server.uri, corpus) == list(range(1, 5001))


def test_the_server_serves_pages_and_a_trials_files(server, corpus):
    with Recorder(server.uri, corpus) as recorder:
        recorder.start_trial("t1", "trial", {})
        recorder.log_files("t1", {"notes.txt": "a note"})
        recorder.finish_trial("t1", TrialState.COMPLETE)
        assert recorder.flush(60)
    (run,) = read_leaderboard(server.uri, corpus)
    assert b"<title>MLflow</title>" in fetch(f"{server.uri}/")
    assert fetch(f"{server.uri}/get-artifact?path=notes.txt&run_uuid={run.run_id}") == b"a note"


def test_a_recorder_prints_nothing_to_standard_output(server, corpus, capfd):
    with Recorder(server.uri, corpus) as recorder:
        recorder.start_trial("t1", "trial", {})
        recorder.log_reports("t1", [make_report(1)])
        recorder.finish_trial("t1", TrialState.COMPLETE)
        assert recorder.flush(60)
    assert capfd.readouterr().out == ""


def fetch(address):
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read()


def test_an_unavailable_server_is_an_error_before_a_search(unused_uri):
    with pytest.raises(TrackingError, match=f"no tracking server answers at {unused_uri}"):
        check_tracking(unused_uri)


def test_a_server_passes_the_check_only_while_it_runs(server):
    check_tracking(server.uri)
    server.kill()
    with pytest.raises(TrackingError, match="no tracking server answers"):
        check_tracking(server.uri)


def test_concurrent_processes_that_create_a_store_all_find_it_complete(tmp_path):
    program = f"from memtune.tracking import check_tracking; check_tracking({make_sqlite_uri(tmp_path)!r})"
    started = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(3)]
    errors = [process.communicate(timeout=TIMEOUT_SECONDS)[1].decode() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], errors
