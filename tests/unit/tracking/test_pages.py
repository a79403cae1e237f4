"""Links into MLflow's pages and the command that serves them."""

import json
import socket
import time
import urllib.error
import urllib.request
from contextlib import suppress
from urllib.parse import parse_qs, unquote

import pytest

from memtune.errors import TrackingError
from memtune.tracking import Recorder, comparison_link, experiment_link, serve_pages, sqlite_uri
from memtune.tracking.pages import ui_command


@pytest.fixture
def recorded(tracking_uri):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {})
    return tracking_uri


def test_a_link_opens_a_view_that_the_experiment_holds(recorded, client):
    link = experiment_link(recorded, "ptb", ["model.width"], study="s1", base="http://127.0.0.1:5001/")
    address, query = link.split("?")
    experiment = client.get_experiment_by_name("ptb")
    assert address == f"http://127.0.0.1:5001/#/experiments/{experiment.experiment_id}/runs"
    (name,) = parse_qs(query)["viewStateShareKey"]
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{name}"])
    assert "params.`model.width`" in view["selectedColumns"]
    assert "tags.`memtune.study` = 's1'" in view["searchFilter"]


def test_a_view_by_accuracy_has_the_highest_first(recorded, client):
    link = experiment_link(recorded, "ptb", [], base="http://127.0.0.1:5001/", objective="accuracy")
    (name,) = parse_qs(link.split("?")[1])["viewStateShareKey"]
    tags = client.get_experiment_by_name("ptb").tags
    view = json.loads(tags[f"mlflow.sharedViewState.{name}"])
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`best_valid_accuracy`", False)


def test_a_comparison_names_its_runs(recorded):
    link = comparison_link(recorded, "ptb", ["r1", "r2"], base="http://127.0.0.1:5001")
    assert link.startswith("http://127.0.0.1:5001/#/compare-runs?")
    assert 'runs=["r1", "r2"]' in unquote(link)


def test_a_corpus_without_records_has_no_page(tracking_uri):
    with pytest.raises(TrackingError, match='corpus "nothing"'):
        comparison_link(tracking_uri, "nothing", [])


def test_the_pages_are_served_on_loopback(recorded):
    command = ui_command(recorded, port=5001)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5001"


def test_a_server_needs_no_pages_of_its_own():
    with pytest.raises(TrackingError, match="open http://host:5000"):
        ui_command("http://host:5000", port=5000)


def test_nothing_recorded_is_nothing_to_show(tmp_path):
    with pytest.raises(TrackingError, match="run a search"):
        ui_command(sqlite_uri(tmp_path), port=5000)


def test_a_port_that_is_taken_is_refused_before_a_server_starts(recorded):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(TrackingError, match=rf"port {port} .*--port {port + 1}"),
            serve_pages(recorded, port),
        ):
            pytest.fail("the server started")


def asked(port, origin):
    """The status of a question that a page from `origin` puts to the server."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/experiments/search",
        data=b'{"max_results": 1}',
        headers={"Origin": origin, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_server_starts_without_warnings_and_answers_its_own_pages_alone(recorded, capfd):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serve_pages(recorded, port):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(urllib.error.URLError):
                asked(port, f"http://127.0.0.1:{port}")
                break
            time.sleep(0.2)
        own = [asked(port, f"http://{host}:{port}") for host in ("127.0.0.1", "localhost")]
        assert (*own, asked(port, "http://example.com")) == (200, 200, 403)
    said = "".join(capfd.readouterr())
    assert "startup complete" in said
    assert "deprecated" not in said
    assert "0.0.0.0" not in said
