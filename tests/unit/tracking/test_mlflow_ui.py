"""Links to MLflow's pages, and the server of these pages."""

import json
import socket
import stat
import urllib.error
import urllib.request
from urllib.parse import parse_qs, unquote

import pytest

from memtune.errors import TrackingError
from memtune.tracking import Recorder, comparison_link, experiment_link, serve_pages, sqlite_uri
from memtune.tracking.mlflow_ui import _write_private, start_server

TOKEN = "t" * 43


@pytest.fixture
def recorded(tracking_uri):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {})
    return tracking_uri


def test_a_link_opens_a_view_that_the_experiment_holds(recorded, client):
    link = experiment_link(recorded, "ptb", ["model.width"], study="s1", pages_url="http://127.0.0.1:5001/")
    address, query = link.split("?")
    experiment = client.get_experiment_by_name("ptb")
    assert address == f"http://127.0.0.1:5001/#/experiments/{experiment.experiment_id}/runs"
    (name,) = parse_qs(query)["viewStateShareKey"]
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{name}"])
    assert "params.`model.width`" in view["selectedColumns"]
    assert "tags.`memtune.study` = 's1'" in view["searchFilter"]


def test_a_view_by_accuracy_has_the_highest_first(recorded, client):
    link = experiment_link(recorded, "ptb", [], pages_url="http://127.0.0.1:5001/", objective="accuracy")
    (name,) = parse_qs(link.split("?")[1])["viewStateShareKey"]
    tags = client.get_experiment_by_name("ptb").tags
    view = json.loads(tags[f"mlflow.sharedViewState.{name}"])
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`best_valid_accuracy`", False)


def test_a_comparison_names_its_runs(recorded):
    link = comparison_link(recorded, "ptb", ["r1", "r2"], pages_url="http://127.0.0.1:5001")
    assert link.startswith("http://127.0.0.1:5001/#/compare-runs?")
    assert 'runs=["r1", "r2"]' in unquote(link)


def test_a_corpus_without_records_has_no_page(tracking_uri):
    with pytest.raises(TrackingError, match='corpus "nothing"'):
        comparison_link(tracking_uri, "nothing", [])


def test_pages_of_a_tracking_server_need_no_second_server():
    with pytest.raises(TrackingError, match="open http://host:5000"):
        start_server("http://host:5000", 5000, TOKEN)


def test_a_store_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(TrackingError, match="run a search"):
        start_server(sqlite_uri(tmp_path), 5000, TOKEN)


def test_a_port_in_use_is_refused_before_a_server_starts(recorded):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(TrackingError, match=rf"port {port} .*--port {port + 1}"),
            serve_pages(recorded, port),
        ):
            pytest.fail("the server started")


def send_request(port, token, origin=None):
    """The status of a search for experiments, which a page from `origin` sends."""
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"Origin": origin} if origin else {}
    address = f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/experiments/search"
    request = urllib.request.Request(address, data=b'{"max_results": 1}', headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def pages(recorded):
    """MLflow's pages over a store with one trial."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serve_pages(recorded, port) as served:
        yield served


def test_the_server_prints_nothing_and_answers_only_its_owner(pages, capfd):
    port = int(pages.url.rpartition(":")[2])
    assert send_request(port, pages.token, f"http://localhost:{port}") == 200
    assert send_request(port, None) == 401
    assert send_request(port, pages.token, "http://example.com") == 403
    assert "".join(capfd.readouterr()) == ""


def test_the_file_with_the_address_is_private_and_removed_with_the_server(recorded, pages):
    mode = pages.address_file.stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert pages.address_file.read_text() == f"{pages.url}/?token={pages.token}\n"


def test_a_link_in_place_of_the_file_with_the_address_is_replaced(tmp_path):
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    _write_private(tmp_path / "link", "secret")
    assert not target.exists()
    assert (tmp_path / "link").read_text() == "secret"
