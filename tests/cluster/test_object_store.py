"""Corpora and checkpoints in an object store, over a real S3 endpoint with injected faults."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from memtune.api import train
from memtune.corpora import Example, VectorFile, import_corpus, list_corpora, open_corpus, verify_corpus
from memtune.errors import StorageError
from memtune.settings import Settings
from memtune.storage import folder
from memtune.storage.folder import Folder
from memtune.training import Report
from tests.cluster.fault_table import RecordFault
from tests.cluster.poll import poll_until
from tests.cluster.proxy import FaultyProxy
from tests.cluster.servers import ObjectStore

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


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    """A proxy of the S3 server that injects faults."""
    with FaultyProxy(int(object_store.address.rpartition(":")[2])).serve() as running:
        yield running


@pytest.fixture
def bucket(
    object_store: ObjectStore,
    proxy: FaultyProxy,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """A new bucket's URI; the endpoint and its keys come from the environment, as on a cluster."""
    for name, value in object_store.build_client_environment(f"http://127.0.0.1:{proxy.port}").items():
        monkeypatch.setenv(name, value)
    name = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-60:].strip("-")
    object_store.make_bucket(name)
    return f"s3://{name}"


def make_splits() -> dict[str, list[list[str]]]:
    return dict.fromkeys(("train", "valid", "test"), SENTENCES)


def test_a_corpus_is_imported_to_listed_in_and_opened_from_a_bucket(bucket: str, tmp_path: Path) -> None:
    remote_manifest = import_corpus("small", make_splits(), f"{bucket}/corpora").manifest
    local_manifest = import_corpus("small", make_splits(), str(tmp_path / "corpora")).manifest
    assert remote_manifest.digest == local_manifest.digest
    assert [manifest.name for manifest in list_corpora(f"{bucket}/corpora")] == ["small"]
    assert verify_corpus("small", f"{bucket}/corpora") == []
    opened = open_corpus("small", f"{bucket}/corpora", tmp_path / "cache")
    assert opened["train"].token_count == local_manifest.splits["train"].tokens


def test_annotations_and_vectors_go_to_a_bucket_and_back(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "vectors").write_text("a 1 2\n")
    pair = Example([["a", "b"], ["a"]], {"inference": [(0, 1, 2)]})
    vectors = VectorFile(tmp_path / "vectors")
    import_corpus("pairs", {"train": [pair], "valid": [pair]}, f"{bucket}/corpora", vectors=vectors)
    opened = open_corpus("pairs", f"{bucket}/corpora", tmp_path / "cache")
    assert opened.annotations["inference"]["valid"].to_pylist() == [
        {"premise": 0, "hypothesis": 1, "label": 2}
    ]
    assert opened.vectors is not None
    assert opened.vectors.values_VE[opened.vocabulary.get_id("a")].tolist() == [1, 2]
    assert verify_corpus("pairs", f"{bucket}/corpora") == []


def test_an_altered_shard_in_a_bucket_is_named(bucket: str) -> None:
    manifest = import_corpus("small", make_splits(), f"{bucket}/corpora").manifest
    shard = manifest.splits["train"].shards[0].path
    files, root = fs.FileSystem.from_uri(f"{bucket}/corpora")
    with files.open_output_stream(f"{root}/small/{shard}") as stream:
        stream.write(b"something else")
    assert any(shard in problem for problem in verify_corpus("small", f"{bucket}/corpora"))


@pytest.fixture
def remote(bucket: str, settings: Settings) -> Settings:
    """Settings with corpora and checkpoints in the bucket, and the rest on this machine."""
    (settings.home / "small.toml").write_text(TRIAL)
    import_corpus("small", make_splits(), f"{bucket}/corpora")
    return settings.model_copy(
        update={"corpus_store": f"{bucket}/corpora", "studies_folder": f"{bucket}/studies"}
    )


def train_trial(remote: Settings, report: Callable[[Report], None] | None = None) -> list[float | None]:
    """Train the trial from its newest checkpoint; return its validation losses. `report` gets each report."""
    return [r.valid_loss for r in train(remote.home / "small.toml", settings=remote, on_report=report).curve]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[float | None]:
    """The validation losses of the same trial with all stores on this machine."""
    home = tmp_path_factory.mktemp("undisturbed")
    local = Settings.from_environment(home).model_copy(update={"corpus_store": str(home / "corpora")})
    (home / "small.toml").write_text(TRIAL)
    import_corpus("small", make_splits(), local.corpus_store, cache=home / "cache")
    return train_trial(local)


def call_at_first_report(action: Callable[[], None]) -> Callable[[Report], None]:
    """A callback for reports that calls `action` at the first one."""
    reports: list[Report] = []

    def report(found: Report) -> None:
        reports.append(found)
        if len(reports) == 1:
            action()

    return report


def test_a_trial_resumes_from_its_checkpoint_in_a_bucket(
    remote: Settings, undisturbed: list[float | None]
) -> None:
    def press_ctrl_c(report: Report) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_trial(remote, press_ctrl_c)
    assert train_trial(remote) == undisturbed


@pytest.mark.parametrize(
    "fault",
    [*(pytest.param(name, marks=pytest.mark.long) for name in ("503", "closed connections")), "lost answers"],
)
def test_requests_to_a_store_that_fails_temporarily_are_retried(
    fault: str,
    remote: Settings,
    proxy: FaultyProxy,
    undisturbed: list[float | None],
    tmp_path: Path,
    record_fault: RecordFault,
) -> None:
    def inject_fault() -> None:
        if fault == "503":
            proxy.respond_503(3)
        elif fault == "closed connections":
            proxy.close_connections(3)
        else:
            proxy.drop_responses(0, 4, 9)

    found = train_trial(remote, call_at_first_report(inject_fault))
    assert proxy.fault_count >= 3
    inject_fault()
    opened = open_corpus("small", remote.corpus_store, tmp_path / "another node")
    fault_count = proxy.fault_count
    proxy.stop_faults()
    assert opened.digest == open_corpus("small", remote.corpus_store).digest
    assert found == undisturbed
    record_fault(
        "object store", fault_count, 0, f"{fault} while a trial stored checkpoints and a node read a corpus"
    )


def test_a_trial_waits_for_a_slow_store(
    remote: Settings, proxy: FaultyProxy, record_fault: RecordFault
) -> None:
    folder = Folder.open(f"{remote.studies_folder}/slow")
    folder.write_json("latest.json", ["one"])
    proxy.delay_responses(3.5)
    assert folder.read_json("latest.json") == ["one"]
    record_fault("object store", 1, 0, "each piece of a response was delayed by 3.5 s")


def test_a_store_that_stays_unavailable_is_an_error_and_the_trial_resumes_later(
    remote: Settings,
    proxy: FaultyProxy,
    undisturbed: list[float | None],
    monkeypatch: pytest.MonkeyPatch,
    record_fault: RecordFault,
) -> None:
    monkeypatch.setattr(folder, "MAX_ATTEMPTS", 2)
    with pytest.raises(StorageError, match=r"cannot write to s3://.*/checkpoints/.*(503|SLOW_DOWN)"):
        train_trial(remote, call_at_first_report(lambda: proxy.respond_503(1000)))
    with pytest.raises(StorageError, match=r"cannot read s3://.*/corpora.*(503|SLOW_DOWN)"):
        open_corpus("small", remote.corpus_store, remote.home / "another node")
    fault_count = proxy.fault_count
    proxy.stop_faults()
    assert train_trial(remote) == undisturbed
    record_fault(
        "object store", fault_count, 0, "status 503 for longer than the retries last; the trial resumed later"
    )


IMPORT = """
import sys
from memtune.corpora import ImportOptions, import_corpus
words = [["a", "new", "text", "of", "words", str(number)] for number in range(400)]
splits = dict.fromkeys(("train", "valid", "test"), words)
import_corpus("small", splits, sys.argv[1], ImportOptions(shard_tokens=100), replace=True)
"""


def test_a_killed_import_leaves_the_earlier_corpus(
    remote: Settings, proxy: FaultyProxy, record_fault: RecordFault
) -> None:
    before = open_corpus("small", remote.corpus_store).digest
    corpus_folder = Folder.open(f"{remote.corpus_store}/small")
    proxy.delay_responses(0.02)
    with subprocess.Popen([sys.executable, "-c", IMPORT, remote.corpus_store]) as process:
        poll_until(
            lambda: any(has_shards(corpus_folder / name) for name in corpus_folder.list_names()),
            "shards of the new import",
        )
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "the import ended before the kill"
    proxy.stop_faults()
    assert open_corpus("small", remote.corpus_store, remote.home / "another node").digest == before
    assert verify_corpus("small", remote.corpus_store) == []
    record_fault("object store", 1, 0, "an import into a bucket killed while it wrote shards")


def has_shards(data: Folder) -> bool:
    """Whether a folder holds shards of an unfinished import."""
    return len([name for name in data.list_names() if name.startswith("train")]) > 2
