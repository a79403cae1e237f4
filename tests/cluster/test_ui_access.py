"""A second local user against a real `memtune ui`, and its owner in a browser."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from memtune.storage.uris import make_sqlite_uri
from memtune.tracking import Recorder, link_corpus
from memtune.trial_state import TrialState
from tests.cluster.poll import poll_until
from tests.cluster.ports import find_free_port
from tests.presence import require

pytestmark = pytest.mark.cluster

OTHER_USER_ID = 65534

ATTACK = """
import base64, json, os, sys, urllib.error, urllib.request
url, secret, target = sys.argv[1:]

def send(path, body=None, headers={}, method=None):
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **headers}
    asked = urllib.request.Request(url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")

def read(path):
    try:
        with open(path) as file:
            return 200, file.read()
    except OSError as error:
        return error.errno, ""

def read_of_processes(name):
    found = ""
    for process in os.listdir("/proc"):
        try:
            with open(f"/proc/{process}/{name}", "rb") as file:
                found += file.read().decode(errors="replace")
        except OSError:
            pass
    return 403, found

basic = {"Authorization": "Basic " + base64.b64encode(b"admin:password1234").decode()}
artifacts = "/api/2.0/mlflow-artifacts/artifacts/"
attacks = {
    "list experiments": send("/api/2.0/mlflow/experiments/search", {"max_results": 10}),
    "list through the pages": send("/ajax-api/2.0/mlflow/experiments/search", {"max_results": 10}),
    "guess a password": send("/api/2.0/mlflow/experiments/search", {"max_results": 10}, basic),
    "guess a token": send("/?token=guess"),
    "create an experiment": send("/api/2.0/mlflow/experiments/create",
                                 {"name": "x", "artifact_location": os.path.dirname(secret)}),
    "read a private file": send("/get-artifact?run_uuid=x&path=" + os.path.basename(secret)),
    "upload an artifact": send(artifacts + "x/authorized_keys", b"key", method="PUT"),
    "upload outside of the root": send(artifacts + "%2e%2e/%2e%2e" + target, b"key", method="PUT"),
    "query with graphql": send("/graphql", {"query": "{ test { output } }"}),
    "run a shell command": send("/ajax-api/3.0/mlflow/assistant/message", {"message": "id"}),
    "another host name": send("/", headers={"Host": "attacker.example"}),
    "read the file with the address": read(os.path.join(os.path.dirname(secret), "ui-address.txt")),
    "read the command line": read_of_processes("cmdline"),
    "read the environment": read_of_processes("environ"),
}
print(json.dumps(attacks))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A MEMTUNE_HOME with one recorded trial, whose folders every user may enter, and a private file."""
    home = tmp_path_factory.mktemp("home")
    for folder in (home, *list(home.parents)[:2]):
        folder.chmod(0o755)
    with Recorder(make_sqlite_uri(home), "ptb") as recorder:
        recorder.start_study("s1", "study", {})
        recorder.start_trial("t1", "lstm #0", {"model.width": 8}, {"family": "lstm", "protocol": "stream"})
        recorder.log_reports("t1", [{"tokens": 100 * n, "valid_perplexity": 90.0 / n} for n in range(1, 7)])
        recorder.finish_trial("t1", TrialState.COMPLETE)
    secret = home / "secret"
    secret.write_text("private")
    secret.chmod(0o600)
    return home


@pytest.fixture(scope="module")
def server(home):
    """A running `memtune ui`."""
    environment = {**os.environ, "MEMTUNE_HOME": str(home)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    port = find_free_port()
    command = [sys.executable, "-m", "memtune.cli", "ui", "--port", str(port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = require(process.stdout).readline()
            assert "token" not in line, "the token is in an output that is not a terminal"
            poll_until(lambda: is_answering(port), "the pages")
            yield process
        finally:
            process.terminate()


def is_answering(port):
    """Whether the server has loaded; it accepts connections before."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
        return True
    return False


@pytest.fixture(scope="module")
def address(home, server):
    """The address of the server, with its token."""
    return (home / "ui-address.txt").read_text().strip()


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user"
)
def test_another_local_user_gets_nothing(home, address):
    url, _, token = address.partition("/?token=")
    target = home / "written"
    # The system's Python: another user may not enter the folder of this one.
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    become = [
        "setpriv",
        f"--reuid={OTHER_USER_ID}",
        f"--regid={OTHER_USER_ID}",
        "--clear-groups",
        "--inh-caps=-all",
    ]
    command = [*become, python, "-", url, str(home / "secret"), str(target)]
    done = subprocess.run(
        command, input=ATTACK, capture_output=True, text=True, check=True, cwd="/", timeout=300
    )
    answers = json.loads(done.stdout)
    assert {name: status for name, (status, _) in answers.items() if status not in (13, 401, 403)} == {}
    assert not any(token in body or body == "private" for _, body in answers.values())
    assert not target.exists()
    assert sorted(path.name for path in home.rglob("*")).count("authorized_keys") == 0


def read_page(address, profile):
    """The text of a page after its scripts ran, as a browser with this profile shows it."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--window-size=1900,800", "--virtual-time-budget=60000", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser")
def test_the_owner_opens_the_printed_address_and_sees_the_trials(home, address, tmp_path_factory):
    profile = tmp_path_factory.mktemp("browser")
    url, _, query = address.partition("/?")
    link = link_corpus(make_sqlite_uri(home), "ptb", pages_url=url).trials
    page = read_page(link.replace("/#", f"/?{query}#"), profile)
    assert "lstm #0" in page
    refused = read_page(link, tmp_path_factory.mktemp("refused"))
    assert "lstm #0" not in refused
    assert "memtune ui" in refused


def test_the_server_ends_with_its_command(address, server):
    """The last test, because it ends the server."""
    assert is_listening(address)
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=60) == 0
    assert not is_listening(address)


def is_listening(address):
    """Whether a process accepts connections at an address."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(address).port)) == 0
