"""Links lead to the pages that `memtune ui` serves, while it serves them."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtune.cli.terminal import out, print_pages
from memtune.results.comparison import compare
from memtune.settings import Settings
from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import Recorder
from memtune.tracking.mlflow_ui import _write_private, find_running_pages


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server of this user."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def record_address(folder: Path, port: int) -> Path:
    path = folder / "ui-address.txt"
    _write_private(path, f"http://127.0.0.1:{port}/?token=secret\n")
    return path


def test_the_pages_are_found_without_their_token_while_their_server_runs(tmp_path: Path, port: int) -> None:
    assert find_running_pages(make_sqlite_uri(tmp_path)) is None
    record_address(tmp_path, port)
    assert find_running_pages(make_sqlite_uri(tmp_path)) == f"http://127.0.0.1:{port}"


def test_the_address_of_a_server_that_was_killed_is_not_used(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        record_address(tmp_path, listening.getsockname()[1])
    assert find_running_pages(make_sqlite_uri(tmp_path)) is None


def test_an_address_that_others_can_write_is_not_used(tmp_path: Path, port: int) -> None:
    record_address(tmp_path, port).chmod(0o666)
    assert find_running_pages(make_sqlite_uri(tmp_path)) is None


@pytest.mark.parametrize(
    "text", ["http://example.org:{port}/?token=a", "http://127.0.0.1:{port}@example.org/?token=a", "", "\xff"]
)
def test_an_address_of_another_form_is_not_used(text: str, tmp_path: Path, port: int) -> None:
    path = record_address(tmp_path, port)
    path.write_text(text.format(port=port))
    path.chmod(0o600)
    assert find_running_pages(make_sqlite_uri(tmp_path)) is None


def test_the_links_of_a_comparison_lead_to_the_running_server(
    settings: Settings, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Recorder(settings.tracking_uri, "tiny") as recorder:
        recorder.start_trial("a", "trial", {})
    usual = compare("tiny", settings=settings).pages
    record_address(settings.home, port)
    found = compare("tiny", settings=settings).pages
    assert usual.trials.startswith("http://127.0.0.1:5000/#")
    assert found.trials == usual.trials.replace(":5000/", f":{port}/", 1)
    with out.keep_file():
        print_pages(found)
        print_pages(usual)
    running, other = capsys.readouterr().out.split("charts of the best of each family")[1:]
    assert "`memtune ui` serves these pages now" in running
    assert "--port" not in running.partition("trials in MLflow")[0]
    assert "with --port, put that port's number" in other
