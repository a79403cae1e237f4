"""Links to MLflow's pages, and the server of these pages."""

import base64
import json
import socket
import stat
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import pytest

from memtune.errors import TrackingError
from memtune.settings import Settings
from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import Recorder, compatibility, link_corpora, link_corpus, serve_pages
from memtune.tracking.mlflow_ui import ServedPages, _end_group, _write_private, start_server
from tests.cluster.poll import poll_until
from tests.cluster.ports import find_free_port

TOKEN = "t" * 43


@pytest.fixture
def recorded(tracking_uri):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {})
    return tracking_uri


def read_view(client, link):
    """The shared view that a link names, as the pages read it."""
    (name,) = parse_qs(link.split("?")[1])["viewStateShareKey"]
    stored = json.loads(client.get_experiment_by_name("ptb").tags[f"mlflow.sharedViewState.{name}"])
    if "state" not in stored:
        return stored
    return json.loads(zlib.decompress(base64.b64decode(stored["state"].removeprefix("deflate;"))))


def test_a_link_opens_a_view_that_the_experiment_holds(recorded, client):
    pages = link_corpus(recorded, "ptb", study="s1", pages_url="http://127.0.0.1:5001/")
    address = pages.trials.split("?")[0]
    experiment = client.get_experiment_by_name("ptb")
    assert address == f"http://127.0.0.1:5001/#/experiments/{experiment.experiment_id}/runs"
    view = read_view(client, pages.trials)
    assert "params.`parameters`" in view["selectedColumns"]
    assert "tags.`memtune.status`" in view["selectedColumns"]
    assert "tags.`memtune.study` = 's1'" in view["searchFilter"]


def test_the_view_of_a_study_whose_id_ends_in_another_sign_has_its_own_name(recorded, client):
    link = link_corpus(recorded, "ptb", study="X ray (X)").trials
    assert link.endswith("viewStateShareKey=memtune-X-ray-X")
    assert "tags.`memtune.study` = 'X ray (X)'" in read_view(client, link)["searchFilter"]


@pytest.mark.parametrize(("tags", "is_shown"), [({"ideal_perplexity": "20.5"}, True), ({}, False)])
def test_the_distance_to_the_ideal_is_shown_where_it_is_known(tracking_uri, client, tags, is_shown):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {}, tags)
    columns = read_view(client, link_corpus(tracking_uri, "ptb").trials)["selectedColumns"]
    assert ("metrics.`above_ideal_percent`" in columns) is is_shown


def test_a_view_by_accuracy_has_the_highest_first(tracking_uri, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {}, {"objective": "accuracy"})
    view = read_view(client, link_corpus(tracking_uri, "ptb").trials)
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`best_validation`", False)


def test_a_view_has_trials_of_one_label_only(tracking_uri, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {}, {"protocol": "sentence"})
        recorder.start_trial("b", "trial", {}, {"protocol": "stream"})
        recorder.start_trial("c", "trial", {}, {"protocol": "stream"})
    assert (
        "tags.`memtune.protocol` = 'stream'"
        in read_view(client, link_corpus(tracking_uri, "ptb").trials)["searchFilter"]
    )
    other = link_corpus(tracking_uri, "ptb", "sentence")
    assert "tags.`memtune.protocol` = 'sentence'" in read_view(client, other.trials)["searchFilter"]


def read_charts(client, link):
    """The charts of a link's view by type."""
    return {chart["type"]: chart for chart in read_view(client, link)["compareRunCharts"]}


def test_charts_have_the_parameters_that_all_trials_have_and_in_which_they_differ(tracking_uri, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {"model": {"width": 1, "layers": 1}})
        recorder.start_trial("b", "trial", {"model": {"width": 2, "layers": 1, "memory_size": 3}})
    pages = link_corpus(tracking_uri, "ptb")
    charts = read_charts(client, pages.charts)
    assert charts.keys() == {"LINE", "SCATTER", "PARALLEL"}
    assert charts["PARALLEL"]["selectedParams"] == ["model.width"]
    assert "tags.`memtune.best_of_family` = 'yes'" in read_view(client, pages.families)["searchFilter"]


def test_the_best_of_each_family_is_one_run_also_of_two_studies(tracking_uri, client):
    figures = {"a": ("lstm", 90.0), "b": ("lstm", 80.0), "c": ("rnn", 99.0)}
    with Recorder(tracking_uri, "ptb") as recorder:
        for name, (family, _) in figures.items():
            recorder.start_trial(name, "trial", {}, {"family": family})
    experiment = client.get_experiment_by_name("ptb")
    runs = {run.data.tags["memtune.trial"]: run.info.run_id for run in search_trials(client, experiment)}
    for name, (_, figure) in figures.items():
        client.log_metric(runs[name], "best_validation", figure)
        client.set_tag(runs[name], "memtune.best_of_family", "yes")
    search = read_view(client, link_corpus(tracking_uri, "ptb").families)["searchFilter"]
    shown = client.search_runs([experiment.experiment_id], search)
    assert {run.info.run_id for run in shown} == {runs["b"], runs["c"]}


def test_the_best_of_alternatives_are_those_of_a_compared_field_where_a_study_compares_one(
    tracking_uri, client
):
    figures = {"a": ("mixer kda", 90.0), "b": ("mixer kda", 80.0), "c": ("mixer lstm", 99.0)}
    with Recorder(tracking_uri, "ptb") as recorder:
        for name, (mixer, _) in figures.items():
            tags = {"family": "mixer_blocks", "alternative": mixer, "best_of_family": "yes"}
            recorder.start_trial(name, "trial", {"alternative": mixer}, tags)
            recorder.log_reports(name, [{"tokens": 10, "valid_perplexity": figures[name][1]}])
    pages = link_corpus(tracking_uri, "ptb")
    view = read_view(client, pages.families)
    experiment = client.get_experiment_by_name("ptb")
    shown = client.search_runs([experiment.experiment_id], view["searchFilter"])
    assert {run.data.tags["memtune.trial"] for run in shown} == {"b", "c"}
    assert view["selectedColumns"][0] == "tags.`memtune.alternative`"
    assert read_charts(client, pages.charts)["PARALLEL"]["selectedParams"] == ["alternative"]
    assert [title for title, _ in pages.list_titled_links()][2] == "charts of the best of each alternative"


def search_trials(client, experiment):
    return client.search_runs([experiment.experiment_id], "tags.`memtune.role` = 'trial'")


def test_a_model_that_counts_changes_the_scale_of_tokens_but_not_the_charted_parameters(tracking_uri, client):
    with Recorder(tracking_uri, "ptb") as recorder:
        for number, rate in enumerate((0.1, 0.2)):
            parameters = {"model": {"width": number}, "training": {"optimiser": {"learning_rate": rate}}}
            recorder.start_trial(f"t{number}", f"lstm #{number}", parameters)
    trained = read_charts(client, link_corpus(tracking_uri, "ptb").charts)
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("k", "kneser_ney #2", {"model": {"order": 5}})
    mixed = read_charts(client, link_corpus(tracking_uri, "ptb").charts)
    searched = ["model.width", "training.optimiser.learning_rate"]
    assert [charts["PARALLEL"]["selectedParams"] for charts in (trained, mixed)] == [searched, searched]
    assert [charts["LINE"]["xAxisScaleType"] for charts in (trained, mixed)] == ["linear", "log"]


@pytest.mark.parametrize(("objective", "scale"), [("perplexity", "log"), ("accuracy", "linear")])
def test_perplexities_have_a_logarithmic_axis_and_accuracies_a_linear_one(
    tracking_uri, client, objective, scale
):
    with Recorder(tracking_uri, "ptb") as recorder:
        recorder.start_trial("a", "trial", {"model": {"width": 1}}, {"objective": objective})
    assert read_charts(client, link_corpus(tracking_uri, "ptb").charts)["LINE"]["scaleType"] == scale


def test_charts_show_all_runs_of_their_view(recorded, client):
    pages = link_corpus(recorded, "ptb")
    for link in (pages.charts, pages.families):
        assert read_view(client, link)["runsHiddenMode"] == "SHOW_ALL"


def test_a_linked_experiment_is_one_of_machine_learning(recorded, client):
    experiment = client.get_experiment_by_name("ptb")
    client.delete_experiment_tag(experiment.experiment_id, "mlflow.experimentKind")
    link_corpus(recorded, "ptb")
    assert client.get_experiment_by_name("ptb").tags["mlflow.experimentKind"] == "custom_model_development"


def test_pages_of_another_version_get_the_table_without_charts(recorded, client, monkeypatch):
    for version in ("2.22.0", "4.0.0", None):
        monkeypatch.setattr(compatibility, "read_pages_version", lambda uri, found=version: found)
        experiment = client.get_experiment_by_name("ptb")
        link = link_corpus(recorded, "ptb").trials
        (name,) = parse_qs(link.split("?")[1])["viewStateShareKey"]
        tags = client.get_experiment(experiment.experiment_id).tags
        stored = json.loads(tags[f"mlflow.sharedViewState.{name}"])
        assert "tags.`memtune.status`" in stored["selectedColumns"]
        assert "compareRunCharts" not in stored


def test_every_corpus_with_trials_has_links(recorded, client):
    client.create_experiment("empty")
    (pages,) = link_corpora(recorded, "http://127.0.0.1:5001")
    assert pages.corpus == "ptb"
    assert [link.partition("#")[0] for _, link in pages.list_titled_links()] == ["http://127.0.0.1:5001/"] * 3


def test_a_corpus_without_records_has_no_page(tracking_uri):
    with pytest.raises(TrackingError, match='corpus "nothing"'):
        link_corpus(tracking_uri, "nothing")


def test_pages_of_a_tracking_server_need_no_second_server():
    with pytest.raises(TrackingError, match="open http://host:5000"):
        start_server("http://host:5000", 5000, TOKEN)


def test_a_store_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(TrackingError, match="run a search"):
        start_server(make_sqlite_uri(tmp_path), 5000, TOKEN)


def test_a_port_in_use_is_refused_before_a_server_starts(places):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(TrackingError, match=rf"port {port} .*--port {port + 1}"),
            serve_pages(port, places),
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
def places(recorded, tmp_path):
    """The settings of a home whose records are those of `recorded`."""
    return Settings.from_environment(tmp_path / "home").model_copy(update={"tracking_uri": recorded})


@pytest.fixture
def pages(places):
    """MLflow's pages over a store with one trial."""
    with serve_pages(find_free_port(), places) as served:
        yield served


@pytest.mark.cluster
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


def test_the_server_ignores_warnings_of_old_imports_beside_the_users_filters(recorded, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore::EncodingWarning")
    server = start_server(recorded, 0, TOKEN)
    try:
        # Empty until the kernel has built the memory of the new program.
        path = Path(f"/proc/{server.pid}/environ")
        variables = poll_until(path.read_bytes, "the environment of the server").split(b"\0")
    finally:
        _end_group(server)
    assert any(each.startswith(b"PYTHONWARNINGS=ignore::EncodingWarning,ignore:") for each in variables)


def test_a_link_with_the_token_opens_the_same_page():
    pages = ServedPages(cast(Any, None), "http://127.0.0.1:5001", TOKEN, Path("address"))
    link = "http://127.0.0.1:5001/#/experiments/1"
    assert pages.add_token(link) == f"http://127.0.0.1:5001/?token={TOKEN}#/experiments/1"
