"""Killed, concurrent and large imports, with real processes."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import memtune
from memtune.corpora import (
    CorpusStore,
    ImportOptions,
    import_corpus,
    list_corpora,
    open_corpus,
    verify_corpus,
)
from memtune.errors import CorpusError
from tests.cluster.poll import poll_until
from tests.unit.corpora.conftest import FORKSERVER

pytestmark = pytest.mark.cluster

OPTIONS = ImportOptions(shard_tokens=2)


class Stopping(CorpusStore):
    """A local store that reports when an import reaches a point and then blocks."""

    def stop_at(self, point, reached):
        self.point, self.reached = point, reached
        return self

    def stop(self):
        self.reached.set()
        FORKSERVER.Event().wait()

    def open_folder(self, name):
        folder = super().open_folder(name)
        create = folder.create_file

        def create_file(path):
            if self.point == "shards" and path.endswith("train-00002.arrow"):
                self.stop()
            return create(path)

        folder.create_file = create_file  # type: ignore[method-assign]
        return folder

    def commit(self, manifest):
        if self.point == "manifest":
            self.stop()
        super().commit(manifest)


def iterate_sentences_until(point, reached):
    yield ["c", "d"]
    if point == "text":
        reached.set()
        FORKSERVER.Event().wait()


def import_and_stop(place, point, reached):
    store = Stopping(place.folder).stop_at(point, reached)
    sources = {
        "train": [["a"], ["b"], ["c"]],
        "valid": [["a"]],
        "test": iterate_sentences_until(point, reached),
    }
    import_corpus("small", sources, store, OPTIONS, replace=True)


@pytest.fixture
def kill_an_import(store):
    """Starts an import in a separate process and kills it at a point, without any cleanup."""

    def kill(point):
        reached = FORKSERVER.Event()
        process = FORKSERVER.Process(target=import_and_stop, args=(store, point, reached))
        process.start()
        assert reached.wait(60)
        process.kill()
        process.join()

    return kill


POINTS = pytest.mark.parametrize("point", ["text", "shards", "manifest"])


@POINTS
def test_a_killed_import_leaves_no_corpus_and_the_next_one_deletes_its_files(
    kill_an_import, import_texts, store, cache, point
):
    kill_an_import(point)
    assert list_corpora(store) == []
    with pytest.raises(CorpusError, match='no corpus "small"'):
        open_corpus("small", store, cache)
    manifest = import_texts().manifest
    assert {path.name for path in (store.local_path / "small").iterdir()} == {
        "manifest.json",
        manifest.folder,
    }
    assert verify_corpus("small", store) == []


@POINTS
def test_a_killed_import_keeps_the_old_corpus(kill_an_import, import_texts, store, cache, point):
    old = import_texts().manifest
    kill_an_import(point)
    assert open_corpus("small", store, cache).digest == old.digest
    assert verify_corpus("small", store) == []


def import_together(place, word, barrier):
    sentences = {split: [[word, str(number)] for number in range(50)] for split in ("train", "valid", "test")}
    barrier.wait()
    for _ in range(5):
        import_corpus("small", sentences, place, ImportOptions(shard_tokens=30), replace=True)


def test_concurrent_imports_of_one_name_leave_one_intact_corpus(store, cache):
    barrier = FORKSERVER.Barrier(3, timeout=60)
    processes = [FORKSERVER.Process(target=import_together, args=(store, word, barrier)) for word in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert verify_corpus("small", store) == []
    corpus = open_corpus("small", store, cache)
    word = corpus.vocabulary.tokens[2]
    assert corpus.vocabulary.decode(corpus["test"].read_tokens(0, 3)) == [word, "0", "<eos>"]
    assert len(list((store.local_path / "small").iterdir())) == 2


def test_an_import_says_that_it_waits_for_another_one(import_texts, store, cache, caplog):
    with ThreadPoolExecutor(1) as others:
        with store.lock("small", cache):
            imported = others.submit(import_texts)
            poll_until(lambda: caplog.messages, "the second import")
        assert imported.result().manifest.name == "small"
    assert caplog.messages == ["waiting for the end of another change of corpus small"]


PEAK = """
import sys
from pathlib import Path
from memtune.corpora import TextFile, import_corpus
text, small, folder = map(Path, sys.argv[1:])
sources = {"train": TextFile(text), "valid": TextFile(small), "test": TextFile(small)}
import_corpus("large", sources, folder / text.name, cache=folder / "cache")
status = Path("/proc/self/status").read_text().split()
print(status[status.index("VmHWM:") + 1])  # ru_maxrss would count the process that started this one
"""


def measure_peak_megabytes(text, small, folder):
    """Peak memory of an import of the text in a new process."""
    command = [sys.executable, "-c", PEAK, text, small, folder / "stores"]
    path = {"PYTHONPATH": str(Path(memtune.__file__).parents[1])}
    done = subprocess.run(command, env=path, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def test_memory_does_not_grow_with_the_length_of_the_text(tmp_path):
    """Both texts fill blocks and shards completely; only a few numbers per block still grow."""
    piece = "".join(
        " ".join(f"w{(number * factor) % 99_991}" for factor in range(1, 24)) + "\n"
        for number in range(12_000)
    )
    small = tmp_path / "small"
    small.write_text("w1 w2\n")
    peaks = []
    for megabytes in (48, 96):
        text = tmp_path / f"text{megabytes}"
        with text.open("w") as file:
            for _ in range(megabytes * 2**20 // len(piece)):
                file.write(piece)
        peaks.append(measure_peak_megabytes(text, small, tmp_path))
        text.unlink()
    assert peaks[1] < 400
    assert peaks[1] - peaks[0] < 20
