"""The node's cache of corpora stays within its bytes; what a living process uses stays in it."""

import os
import signal
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from memtune.corpora import open_corpus
from memtune.corpora.eviction import byte_limit, make_room
from memtune.errors import ConfigurationError

SIZE = 1000
USER = """
import sys
from pathlib import Path
from memtune.corpora.eviction import hold
hold(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cached(cache, monkeypatch):
    """Three corpora of the cache, "old" last used first and "new" last; room for three and a half."""
    monkeypatch.setenv("MEMTUNE_CACHE_BYTES", str(7 * SIZE // 2))
    found = {name: cache / "corpora" / name for name in ("old", "middle", "new")}
    for time, folder in enumerate(found.values()):
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "shard").write_bytes(bytes(SIZE))
        folder.with_name(f"{folder.name}.use").touch()
        os.utime(folder.with_name(f"{folder.name}.use"), (time, time))
    return found


def left(cached) -> set[str]:
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
def test_the_least_recently_used_make_way(cache, cached, needed, stay):
    make_room(cache, cache / "corpora" / "another", needed)
    assert left(cached) == stay


def test_a_corpus_that_was_opened_again_is_recently_used(cache, cached):
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(cached["old"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout.readline() == b"held\n"
    make_room(cache, cache / "corpora" / "another", SIZE)
    assert left(cached) == {"old", "new"}


def test_what_a_living_process_uses_stays_and_what_a_killed_one_used_does_not(cache, cached):
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(cached["old"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout.readline() == b"held\n"
        make_room(cache, cache / "corpora" / "another", 9 * SIZE)
        assert left(cached) == {"old"}
        user.send_signal(signal.SIGKILL)
    make_room(cache, cache / "corpora" / "another", 9 * SIZE)
    assert left(cached) == set()


def test_the_corpus_that_needs_room_is_not_removed_for_itself(cache, cached):
    make_room(cache, cached["old"], 9 * SIZE)
    assert left(cached) == {"old"}


def opened(name: str, place: object, cache: Path) -> None:
    assert open_corpus(name, place, cache)["train"].token_count > 0


def test_a_corpus_takes_the_place_of_another_and_that_one_is_fetched_again(
    import_texts, remote_store, cache, monkeypatch
):
    import_texts(name="first", place=remote_store)
    import_texts(name="second", place=remote_store)
    monkeypatch.setenv("MEMTUNE_CACHE_BYTES", "1")
    for name in ("first", "second", "first"):
        process = get_context("fork").Process(target=opened, args=(name, remote_store, cache))
        process.start()
        process.join()
        assert process.exitcode == 0
        assert [path.name.split("-")[0] for path in (cache / "corpora").iterdir() if path.is_dir()] == [name]


def test_without_a_limit_it_is_a_quarter_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.delenv("MEMTUNE_CACHE_BYTES", raising=False)
    disk = os.statvfs(tmp_path)
    assert byte_limit(tmp_path) == disk.f_frsize * disk.f_blocks // 4


@pytest.mark.parametrize("text", ["10 GB", "-1", "1e9"])
def test_a_limit_that_is_no_number_of_bytes_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setenv("MEMTUNE_CACHE_BYTES", text)
    with pytest.raises(ConfigurationError, match=f'whole number of bytes, got "{text}"'):
        byte_limit(tmp_path)
