"""A store that is not a local folder: downloaded to the node's cache and verified there."""

import os
import resource
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from memtune.corpora import CorpusStore, import_corpus, list_corpora, open_corpus, verify_corpus
from memtune.errors import CorpusError, StorageError
from memtune.storage.folder import Folder
from tests.unit.corpora.conftest import FORKSERVER


@pytest.fixture
def remote_folder(tmp_path) -> Path:
    return tmp_path / "remote" / "corpora"


@pytest.fixture
def imported(import_texts, remote_store):
    return import_texts(place=remote_store, shard_tokens=5).manifest


def test_a_remote_corpus_equals_the_local_one(imported, import_texts, store, remote_store, cache):
    assert imported.digest == import_texts(place=store).manifest.digest
    remote, local = open_corpus("small", remote_store, cache), open_corpus("small", store, cache)
    assert remote.vocabulary.batch == local.vocabulary.batch
    for split in ("train", "valid", "test"):
        count = local[split].token_count
        assert remote[split].read_tokens(0, count).tolist() == local[split].read_tokens(0, count).tolist()


def test_a_remote_corpus_is_read_from_the_cache(imported, remote_store, remote_folder, cache):
    open_corpus("small", remote_store, cache)
    for file in imported.files:
        (remote_folder / "small" / file.path).unlink()
    corpus = open_corpus("small", remote_store, cache)
    assert corpus["train"].token_count == imported.splits["train"].tokens
    assert not list(cache.rglob("*.partial"))


@pytest.mark.parametrize("size", [-1, 0], ids=["truncated", "altered"])
def test_a_damaged_remote_shard_is_reported_and_not_cached(
    imported, remote_store, remote_folder, cache, size
):
    shard = imported.splits["train"].shards[1]
    path = remote_folder / "small" / shard.path
    path.write_bytes(bytes(shard.bytes + size))
    with pytest.raises(CorpusError, match=f"wrapped://corpora/small/{shard.path} has .* altered"):
        open_corpus("small", remote_store, cache)
    assert not list(cache.rglob(Path(shard.path).name + "*"))
    assert any(shard.path in problem for problem in verify_corpus("small", remote_store))


def test_a_missing_remote_shard_is_reported(imported, remote_store, remote_folder, cache):
    shard = imported.splits["train"].shards[1]
    (remote_folder / "small" / shard.path).unlink()
    with pytest.raises(CorpusError, match=f"small/{shard.path} is missing"):
        open_corpus("small", remote_store, cache)


def test_a_file_damaged_in_the_cache_is_downloaded_again(imported, remote_store, cache):
    open_corpus("small", remote_store, cache)
    (copy,) = cache.rglob("train-00000.arrow")
    content = copy.read_bytes()
    copy.write_bytes(content[:-4])
    open_corpus("small", remote_store, cache)
    assert copy.read_bytes() == content


def test_a_full_cache_is_reported_and_keeps_no_partial_file(imported, remote_store, cache):
    """No file may grow beyond a few bytes, as on a full disk; then the limit is lifted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageError, match=f"cannot write to the cache {cache}: .*MEMTUNE_CACHE"):
            open_corpus("small", remote_store, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path for path in cache.rglob("*") if path.is_file() and path.stat().st_size] == []
    tokens = imported.splits["train"].tokens
    assert open_corpus("small", remote_store, cache)["train"].token_count == tokens


def test_a_replaced_corpus_has_its_own_cache_folder(imported, import_texts, remote_store, cache):
    old = open_corpus("small", remote_store, cache)
    import_texts(place=remote_store, test="the dog\n", replace=True)
    new = open_corpus("small", remote_store, cache)
    assert old["test"].read_tokens(0, 6).tolist() != new["test"].read_tokens(0, 3).tolist()
    assert new["test"].token_count == 3


def test_replacing_deletes_the_old_data(imported, import_texts, remote_store, remote_folder):
    new = import_texts(place=remote_store, test="the dog\n", replace=True).manifest
    assert {path.name for path in (remote_folder / "small").iterdir()} == {"manifest.json", new.folder}


def test_a_refused_import_leaves_no_data(imported, import_texts, remote_store, remote_folder):
    with pytest.raises(CorpusError, match="has a different corpus"):
        import_texts(place=remote_store, test="the dog\n")
    assert {path.name for path in (remote_folder / "small").iterdir()} == {"manifest.json", imported.folder}


def test_an_import_that_ended_on_another_machine_meanwhile_is_not_replaced(
    import_texts, remote_store, cache, tmp_path
):
    class Meanwhile(CorpusStore):
        @contextmanager
        def create_folder(self, name, folder):
            import_texts(place=remote_store, test="the dog\n")
            with super().create_folder(name, folder) as corpus:
                yield corpus

    other_machine = tmp_path / "another cache"
    sources = {split: [["a", "cat"]] for split in ("train", "valid", "test")}
    with pytest.raises(CorpusError, match="has a different corpus"):
        import_corpus("small", sources, Meanwhile(remote_store.folder), cache=other_machine)
    assert open_corpus("small", remote_store, cache)["test"].token_count == 3


def test_importing_the_same_content_again_stores_no_second_copy(
    imported, import_texts, remote_store, remote_folder
):
    assert import_texts(place=remote_store).unchanged
    assert {path.name for path in (remote_folder / "small").iterdir()} == {"manifest.json", imported.folder}


def test_only_data_unchanged_for_a_day_counts_as_abandoned(
    imported, import_texts, remote_store, remote_folder
):
    for name, age in (("data-living", 3600), ("data-dead", 2 * 24 * 3600)):
        left = remote_folder / "small" / name / "train-00000.arrow"
        left.parent.mkdir()
        left.write_bytes(b"half")
        for path in (left, left.parent):
            os.utime(path, (time.time() - age,) * 2)
    import_texts(place=remote_store)
    found = {path.name for path in (remote_folder / "small").iterdir()}
    assert found == {"manifest.json", imported.folder, "data-living"}


def test_remote_corpora_are_listed(imported, remote_store):
    assert list_corpora(remote_store) == [imported]


def test_a_failing_remote_store_is_reported_with_its_uri(tmp_path, import_texts):
    (tmp_path / "file").write_text("")
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    broken = CorpusStore(Folder(files, "file/corpora", "wrapped://broken"))
    with pytest.raises(StorageError, match=r"cannot .* wrapped://broken"):
        import_texts(place=broken)


def open_counted(root, cache, barrier, results):
    """Opens the corpus concurrently with others and puts the number of files that it downloaded."""

    class Counting(CorpusStore):
        fetched = 0

        def read_file(self, name, file):
            self.fetched += 1
            return super().read_file(name, file)

    files = fs.SubTreeFileSystem(root, fs.LocalFileSystem())
    place = Counting(Folder(files, "corpora", "wrapped://corpora"))
    barrier.wait()
    corpus = open_corpus("small", place, Path(cache))
    results.put((place.fetched, corpus["train"].token_count))


@pytest.mark.cluster
def test_the_processes_of_one_node_download_each_file_once(imported, remote_folder, cache):
    barrier, results = FORKSERVER.Barrier(3), FORKSERVER.Queue()
    arguments = (str(remote_folder.parent), str(cache), barrier, results)
    processes = [FORKSERVER.Process(target=open_counted, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(fetched for fetched, _ in outcomes) == [0, 0, len(imported.files)]
    assert {tokens for _, tokens in outcomes} == {imported.splits["train"].tokens}
