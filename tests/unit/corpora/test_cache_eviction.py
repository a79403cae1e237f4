"""The node's cache of corpora stays within its size limit and keeps corpora that a live process uses."""

import os
import signal
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from memtune.corpora import CorpusStore, open_corpus
from memtune.corpora.store.node_cache import evict, read_byte_limit
from memtune.errors import ConfigurationError
from tests.presence import require

SIZE = 1000
USER = """
import sys
from pathlib import Path
from memtune.corpora.store.node_cache import acquire_shared_lock
acquire_shared_lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cached(cache, monkeypatch):
    """Three cached corpora, from "old" to "new" by last use, and a limit of three and a half corpora."""
    monkeypatch.setenv("MEMTUNE_CACHE_BYTES", str(7 * SIZE // 2))
    found = {name: cache / "corpora" / name for name in ("old", "middle", "new")}
    for time, folder in enumerate(found.values()):
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "shard").write_bytes(bytes(SIZE))
        folder.with_name(f"{folder.name}.use").touch()
        os.utime(folder.with_name(f"{folder.name}.use"), (time, time))
    return found


def list_remaining(cached) -> set[str]:
    return {name for name, folder in cached.items() if folder.exists()}


@pytest.mark.parametrize(
    ("needed", "stay"),
    [
        (SIZE // 2, {"old", "middle", "new"}),
        (SIZE, {"middle", "new"}),
        (2 * SIZE, {"new"}),
        (9 * SIZE, set()),
    ],
)
def test_the_least_recently_used_corpora_are_evicted(cache, cached, needed, stay):
    evict(cache, cache / "corpora" / "another", needed)
    assert list_remaining(cached) == stay


def test_opening_a_corpus_again_makes_it_recently_used(cache, cached):
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(cached["old"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert require(user.stdout).readline() == b"held\n"
    evict(cache, cache / "corpora" / "another", SIZE)
    assert list_remaining(cached) == {"old", "new"}


def test_corpora_of_a_live_process_stay_and_those_of_a_killed_process_are_evicted(cache, cached):
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(cached["old"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert require(user.stdout).readline() == b"held\n"
        evict(cache, cache / "corpora" / "another", 9 * SIZE)
        assert list_remaining(cached) == {"old"}
        user.send_signal(signal.SIGKILL)
    evict(cache, cache / "corpora" / "another", 9 * SIZE)
    assert list_remaining(cached) == set()


def test_the_corpus_that_needs_space_is_not_evicted(cache, cached):
    evict(cache, cached["old"], 9 * SIZE)
    assert list_remaining(cached) == {"old"}


def assert_opens(name: str, place: str | Path | CorpusStore, cache: Path) -> None:
    assert open_corpus(name, place, cache)["train"].token_count > 0


def test_sizes_are_read_while_another_process_downloads_a_corpus(cache, cached, monkeypatch):
    """It renames a file between the moments at which it is listed and measured."""
    monkeypatch.setenv("MEMTUNE_CACHE_BYTES", str(9 * SIZE))
    renamed, read_state = cached["new"] / "data" / "shard", Path.stat

    def rename_and_read(path: Path, **options: bool) -> os.stat_result:
        if path == renamed and os.path.exists(path):
            os.rename(path, f"{path}.whole")
        return read_state(path, **options)

    monkeypatch.setattr(Path, "stat", rename_and_read)
    evict(cache, cache / "corpora" / "another", 1)
    assert Path(f"{renamed}.whole").exists()


def test_an_evicted_corpus_is_downloaded_again(import_texts, remote_store, cache, monkeypatch):
    import_texts(name="first", place=remote_store)
    import_texts(name="second", place=remote_store)
    monkeypatch.setenv("MEMTUNE_CACHE_BYTES", "1")
    for name in ("first", "second", "first"):
        process = get_context("fork").Process(target=assert_opens, args=(name, remote_store, cache))
        process.start()
        process.join()
        assert process.exitcode == 0
        assert [path.name.split("-")[0] for path in (cache / "corpora").iterdir() if path.is_dir()] == [name]


def test_the_default_limit_is_a_quarter_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.delenv("MEMTUNE_CACHE_BYTES", raising=False)
    disk = os.statvfs(tmp_path)
    assert read_byte_limit(tmp_path) == disk.f_frsize * disk.f_blocks // 4


@pytest.mark.parametrize("text", ["10 GB", "-1", "1e9"])
def test_a_limit_that_is_not_a_number_of_bytes_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setenv("MEMTUNE_CACHE_BYTES", text)
    with pytest.raises(ConfigurationError, match=f'whole number of bytes, got "{text}"'):
        read_byte_limit(tmp_path)
