import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from memtune.corpora import (
    CorpusStore,
    ImportOptions,
    describe_corpus,
    import_corpus,
    list_corpora,
    open_corpus,
    verify_corpus,
)
from memtune.corpora.store.corpus_store import MANIFEST_NAME
from memtune.corpora.store.manifest import SCHEMA_VERSION
from memtune.errors import CorpusError, StorageError
from memtune.storage.folder import MAX_DOCUMENT_BYTES


@pytest.fixture
def sharded(store, cache):
    """A corpus of ten training shards of 3 tokens, in which each word is its own position."""
    numbered = [[f"{2 * number:02d}", f"{2 * number + 1:02d}"] for number in range(10)]
    sources = {"train": numbered, "valid": [["00"]], "test": [["19"]]}
    options = ImportOptions(unknown="refuse", shard_tokens=3)
    return import_corpus("numbers", sources, store, options, cache=cache).manifest


STREAM = np.array([[2 * sentence + 1, 2 * sentence + 2, 0] for sentence in range(10)]).ravel()


@pytest.fixture
def train(sharded, store, cache):
    return open_corpus("numbers", store, cache)["train"]


def get_shard_path(store, manifest, index=0):
    return store.local_path / manifest.name / manifest.splits["train"].shards[index].path


def test_every_range_is_read_across_shards(train):
    for start in range(31):
        for stop in range(start, 31):
            assert np.array_equal(train.read_tokens(start, stop), STREAM[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 31), (5, 4)])
def test_a_range_outside_the_stream_is_an_index_error(train, start, stop):
    with pytest.raises(IndexError, match="of a split of 30 tokens"):
        train.read_tokens(start, stop)


def test_positions_are_gathered_in_their_shape_and_order(train):
    positions = np.random.default_rng(0).permutation(30).reshape(5, 3, 2)
    assert np.array_equal(train.gather(positions), STREAM[positions])


def test_gathering_no_positions_gives_an_empty_array(train):
    assert train.gather(np.empty((0, 4), np.int64)).shape == (0, 4)


@pytest.mark.parametrize("position", [-1, 30])
def test_a_position_outside_the_stream_is_an_index_error(train, position):
    with pytest.raises(IndexError, match="of a split of 30 tokens"):
        train.gather(np.array([[0, position]]))


def test_tokens_are_read_as_writable_int64(train):
    for copy in (train.read_tokens(0, 4), train.gather(np.array([1, 2]))):
        assert copy.dtype == np.int64
        copy[0] = 7
    assert train.read_tokens(0, 1)[0] == STREAM[0]


def test_a_sentence_starts_where_the_previous_one_ends(train):
    assert train.starts.tolist() == list(range(0, 30, 3))
    assert train.lengths.tolist() == [3] * 10
    assert (train.token_count, train.sentence_count) == (30, 10)
    assert (train.starts.dtype, train.lengths.dtype) == (np.int64, np.int32)


def test_opening_maps_every_file_and_copies_none(sharded, store, cache):
    open_corpus("numbers", store, cache)
    before = pa.total_allocated_bytes()
    corpus = open_corpus("numbers", store, cache)
    assert pa.total_allocated_bytes() == before
    mapped = Path("/proc/self/maps").read_text()
    assert all(file.path in mapped for file in sharded.files)
    assert corpus["train"].token_count == 30


def test_a_missing_split_is_reported_with_the_nearest_name(sharded, store, cache):
    with pytest.raises(CorpusError, match='numbers has no split "vaild"; did you mean "valid"'):
        open_corpus("numbers", store, cache)["vaild"]


def test_a_missing_corpus_is_reported_with_the_nearest_name(sharded, store, cache):
    with pytest.raises(CorpusError, match=r'no corpus "number" in .*; did you mean "numbers"'):
        open_corpus("number", store, cache)


def test_an_empty_store_has_no_corpora(store, cache):
    assert list_corpora(store) == []
    with pytest.raises(CorpusError, match=r'no corpus "ptb" in .*there are none'):
        open_corpus("ptb", store, cache)


def test_a_name_that_leaves_the_store_is_refused(store, cache):
    with pytest.raises(CorpusError, match="is not a valid name"):
        open_corpus("../numbers", store, cache)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-8])


def alter(path):
    """Change one byte in the middle, and keep size and times."""
    state = path.stat()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


DAMAGE = {
    "truncated": (truncate, r"has \d+ bytes instead of \d+"),
    "altered": (alter, "has another SHA-256"),
    "missing": (Path.unlink, "is missing"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", ["shard", "vocabulary"])
def test_a_damaged_file_is_reported_when_the_corpus_is_first_opened(sharded, store, cache, damage, file):
    path = get_shard_path(store, sharded, 7)
    if file == "vocabulary":
        path = store.local_path / "numbers" / sharded.vocabulary.path
    harm, message = DAMAGE[damage]
    harm(path)
    with pytest.raises(CorpusError, match=f"{path} {message}.*import numbers again with replace"):
        open_corpus("numbers", store, cache)


@pytest.mark.parametrize("damage", DAMAGE)
def test_verify_reports_every_damaged_file(sharded, store, damage):
    harm, message = DAMAGE[damage]
    damaged = [sharded.splits["train"].shards[index].path for index in (2, 5)]
    for path in damaged:
        harm(store.local_path / "numbers" / path)
    problems = verify_corpus("numbers", store)
    assert [
        re.search(f"numbers/{path} {message}", text) is not None
        for path, text in zip(damaged, problems, strict=True)
    ] == [True, True]


def test_a_file_truncated_after_verification_is_reported(sharded, store, cache):
    open_corpus("numbers", store, cache)
    truncate(get_shard_path(store, sharded, 3))
    with pytest.raises(CorpusError, match=f"{sharded.splits['train'].shards[3].path} has"):
        open_corpus("numbers", store, cache)


def test_a_file_changed_after_verification_is_verified_again(sharded, store, cache):
    open_corpus("numbers", store, cache)
    path = get_shard_path(store, sharded, 3)
    alter(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(CorpusError, match="has another SHA-256"):
        open_corpus("numbers", store, cache)


def test_a_file_is_verified_only_once_per_node(sharded, store, cache):
    open_corpus("numbers", store, cache)
    alter(get_shard_path(store, sharded, 3))  # not detected: the record of the node has its size and time
    open_corpus("numbers", store, cache)
    assert verify_corpus("numbers", store) != []


def test_a_damaged_record_in_the_cache_is_recreated(sharded, store, cache):
    open_corpus("numbers", store, cache)
    for record in (cache / "verified").glob("*.json"):
        record.write_text("{")
    assert open_corpus("numbers", store, cache)["train"].token_count == 30


def test_an_unwritable_cache_is_reported_with_its_variable(sharded, store, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to the cache .*set MEMTUNE_CACHE"):
        open_corpus("numbers", store, tmp_path / "file" / "cache")


def test_an_environment_variable_sets_the_cache_folder(sharded, store, tmp_path, monkeypatch):
    monkeypatch.setenv("MEMTUNE_CACHE", str(tmp_path / "elsewhere"))
    open_corpus("numbers", store)
    assert list((tmp_path / "elsewhere" / "verified").glob("*.json"))


def rewrite_manifest(store, **changes):
    path = store.local_path / "numbers" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_newer_schema_is_refused(sharded, store, cache):
    rewrite_manifest(store, schema_version=SCHEMA_VERSION + 1, unheard_of="x")
    with pytest.raises(
        CorpusError, match=r"numbers/manifest.json: written by a newer memtune .*update memtune"
    ):
        open_corpus("numbers", store, cache)


@pytest.mark.parametrize("content", ["", "[]", '{"schema_version": 1}', "\xff"])
def test_an_invalid_manifest_is_refused(sharded, store, cache, content):
    (store.local_path / "numbers" / "manifest.json").write_text(content)
    with pytest.raises(CorpusError, match=r"numbers/manifest.json: not a manifest"):
        open_corpus("numbers", store, cache)


def test_a_manifest_cannot_refer_to_files_outside_its_folder(sharded, store, cache):
    vocabulary = json.loads(sharded.vocabulary.model_dump_json()) | {"path": "../x/vocabulary.arrow"}
    rewrite_manifest(store, vocabulary=vocabulary)
    with pytest.raises(CorpusError, match="not a manifest"):
        open_corpus("numbers", store, cache)


def test_a_renamed_corpus_folder_is_not_opened(sharded, store, cache):
    (store.local_path / "numbers").rename(store.local_path / "figures")
    with pytest.raises(CorpusError, match="the folder figures holds corpus numbers"):
        open_corpus("figures", store, cache)


def test_verify_reports_a_manifest_with_a_different_digest(sharded, store):
    rewrite_manifest(store, digest="0" * 64)
    assert verify_corpus("numbers", store) == [
        "numbers/manifest.json: the digest is not that of the vocabulary and the tokens"
    ]


def test_verify_reports_counts_that_differ_from_the_shard(sharded, store):
    splits = json.loads(sharded.model_dump_json())["splits"]
    splits["train"]["shards"][4]["sentences"] = 2
    rewrite_manifest(store, splits=splits)
    problems = verify_corpus("numbers", store)
    assert problems == [
        f"{splits['train']['shards'][4]['path']}: the manifest has other counts of tokens and sentences"
    ]


def test_a_corpus_replaced_during_opening_is_opened_in_its_new_version(store, cache, import_texts):
    old = import_texts().manifest
    new = import_texts(test="the dog\n", replace=True).manifest

    class StaleReader(CorpusStore):
        """Reads the manifest from before the replacement once, like a reader in a race with the writer."""

        reads_old = True

        def read_manifest(self, name):
            if self.reads_old:
                self.reads_old = False
                return old
            return super().read_manifest(name)

    stale_reader = StaleReader(store.folder)
    assert open_corpus("small", stale_reader, cache).digest == new.digest


def test_the_list_is_sorted_and_ignores_other_folders(store, import_texts):
    for name in ("b", "a", "c"):
        import_texts(name=name)
    (store.local_path / "not-a-corpus").mkdir()
    (store.local_path / "notes.txt").write_text("")
    found = list_corpora(store)
    assert [manifest.name for manifest in found] == ["a", "b", "c"]
    assert list(found.to_frame().train) == [manifest.splits["train"].tokens for manifest in found]


def test_one_unreadable_corpus_does_not_hide_the_others(sharded, store, import_texts):
    import_texts(name="after")
    rewrite_manifest(store, schema_version=SCHEMA_VERSION + 1)
    problems: list[CorpusError] = []
    assert [manifest.name for manifest in list_corpora(store, problems.append)] == ["after"]
    assert "newer memtune" in str(problems[0])
    with pytest.raises(CorpusError, match="newer memtune"):
        list_corpora(store)


def test_a_manifest_that_the_storage_refuses_does_not_hide_the_others(sharded, store, import_texts):
    """A file of this size is not read: memtune has not written it."""
    import_texts(name="after")
    with (store.local_path / "numbers" / MANIFEST_NAME).open("r+b") as manifest:
        manifest.truncate(MAX_DOCUMENT_BYTES + 1)
    problems: list[CorpusError] = []
    assert [manifest.name for manifest in list_corpora(store, problems.append)] == ["after"]
    (problem,) = problems
    assert 'the manifest of corpus "numbers" cannot be read' in str(problem)
    assert "import the corpus again" in str(problem)


def test_a_description_has_common_tokens_and_lengths(store, cache, import_texts):
    import_texts(train="a a a b b c\nb a\n", valid="a\n", test="c c\n")
    description = describe_corpus("small", store)
    assert description.frequent[:3] == (("a", 4), ("b", 3), ("<eos>", 2))
    lengths = description.lengths["train"]
    assert (lengths.shortest, lengths.median, lengths.mean, lengths.longest) == (3, 5.0, 5.0, 7)
