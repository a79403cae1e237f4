"""Corpora and checkpoints in an object store, over a real S3 endpoint."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from memtune.corpora import import_corpus, list_corpora, open_corpus, verify_corpus
from memtune.execution.settings import Settings
from memtune.execution.single import train
from memtune.training import Report

pytestmark = pytest.mark.cluster

SENTENCES = [["the", "dog", "sees", "a", "cat"], ["a", "cat", "sleeps"]] * 20
TRIAL = """corpus = "small"

[model]
family = "lstm"
width = 6

[training]
tokens = 900
report_every = 300
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("s3") / "server.log"
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True) as server,
    ):
        address = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while not _answers(address):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, "no answer within 60 s"
            time.sleep(0.05)
        yield address
        os.killpg(server.pid, signal.SIGTERM)


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/moto-api/", timeout=1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def bucket(endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket's URI; the endpoint and its keys come from the environment, as on a cluster."""
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", endpoint),
    ):
        monkeypatch.setenv(name, value)
    name = request.node.name.replace("_", "-")[:60]
    host = endpoint.removeprefix("http://")
    fs.S3FileSystem(endpoint_override=host, scheme="http", allow_bucket_creation=True).create_dir(name)
    return f"s3://{name}"


def texts() -> dict[str, list[list[str]]]:
    return dict.fromkeys(("train", "valid", "test"), SENTENCES)


def test_a_corpus_is_imported_to_listed_in_and_opened_from_a_bucket(bucket: str, tmp_path: Path) -> None:
    there = import_corpus("small", texts(), f"{bucket}/corpora").manifest
    here = import_corpus("small", texts(), str(tmp_path / "corpora")).manifest
    assert there.digest == here.digest
    assert [manifest.name for manifest in list_corpora(f"{bucket}/corpora")] == ["small"]
    assert verify_corpus("small", f"{bucket}/corpora") == []
    opened = open_corpus("small", f"{bucket}/corpora", tmp_path / "cache")
    assert opened["train"].token_count == here.splits["train"].tokens


def test_an_altered_shard_in_a_bucket_is_named(bucket: str) -> None:
    manifest = import_corpus("small", texts(), f"{bucket}/corpora").manifest
    shard = manifest.splits["train"].shards[0].path
    files, root = fs.FileSystem.from_uri(f"{bucket}/corpora")
    with files.open_output_stream(f"{root}/small/{shard}") as stream:
        stream.write(b"something else")
    assert any(shard in problem for problem in verify_corpus("small", f"{bucket}/corpora"))


def test_a_trial_goes_on_from_its_checkpoint_in_a_bucket(bucket: str, settings: Settings) -> None:
    remote = settings.model_copy(update={"store": f"{bucket}/corpora", "studies": f"{bucket}/studies"})
    import_corpus("small", texts(), remote.store)
    file = settings.home / "small.toml"
    file.write_text(TRIAL)

    def press_ctrl_c(report: Report) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(file, settings=remote, report=press_ctrl_c)
    resumed = train(file, settings=remote)
    file.write_text(TRIAL.replace("[model]", "seed = 0\n\n[model]"))
    local = settings.model_copy(update={"store": remote.store})
    assert [r.valid_loss for r in resumed.curve] == [r.valid_loss for r in train(file, settings=local).curve]
