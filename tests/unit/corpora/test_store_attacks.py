"""Untrusted stores: special files, links and wrong lengths are refused without a hang."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from memtune.corpora import CorpusStore, import_corpus, list_corpora, open_corpus, verify_corpus
from memtune.errors import CorpusError, MemtuneError
from tests.crafted_store import NAME, SENTENCES, create_corpus, list_records, replace_content

MAX_SECONDS = 60
"""Time limit of a process that imports memtune and opens a corpus of 20 files; a hang never ends."""


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_outside(path: Path) -> None:
    """The file outside the store has the right content: only its location is wrong."""
    path.symlink_to(next(folder for folder in path.parents if (folder / "outside").exists()) / "outside")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


SPECIAL_FILES: dict[str, Callable[[Path], None]] = {
    "device": link_to_zero,
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "link out of the store": link_outside,
    "link to itself": link_to_itself,
}
OPEN = """
import sys
from pathlib import Path
from memtune.corpora import list_corpora, open_corpus, verify_corpus
from memtune.errors import MemtuneError
for folder in map(Path, sys.argv[1:]):
    store, cache = folder / "store", folder / "cache2"
    print("store:", folder.name, flush=True)
    for read in (lambda: open_corpus("small", store, cache), lambda: list_corpora(store)[0]):
        try:
            read()
            print("opened")
        except (MemtuneError, IndexError) as error:
            print("refused:", error)
    try:
        print("problems:", len(verify_corpus("small", store)))
    except MemtuneError as error:
        print("problems: 1", error)
"""


def open_in_process(*folders: Path) -> dict[str, list[str]]:
    """What a new process prints that opens the corpus of each folder; fails if it crashes or hangs."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", OPEN, *folders],
            capture_output=True,
            text=True,
            check=False,
            timeout=MAX_SECONDS,
        )
    except subprocess.TimeoutExpired as hung:
        pytest.fail(f"the process hangs after {hung.stdout!r}")
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    printed = [lines.splitlines() for lines in done.stdout.split("store: ")[1:]]
    return {name: lines for name, *lines in printed}


def find_file(corpus: Path, ending: str) -> Path:
    (found,) = corpus.rglob(f"*{ending}")
    return found


def test_a_special_file_in_a_store_is_refused_without_reading_it(tmp_path: Path) -> None:
    """One process opens every store, because its start takes longer than all of them."""
    for kind, make in SPECIAL_FILES.items():
        for ending in ("manifest.json", "vocabulary.arrow", "train-00000.arrow"):
            (folder := tmp_path / f"{kind} as {ending}").mkdir()
            path = find_file(create_corpus(folder), ending)
            path.rename(folder / "outside")
            make(path)
    opened = open_in_process(*tmp_path.iterdir())
    assert len(opened) == 3 * len(SPECIAL_FILES)
    for name, lines in opened.items():
        assert lines[0].startswith("refused:"), (name, lines)
        assert lines[-1].startswith("problems: "), (name, lines)
        assert lines[-1] != "problems: 0", name


@pytest.mark.parametrize("kind", SPECIAL_FILES)
def test_a_file_replaced_after_verification_is_refused(kind: str, tmp_path: Path) -> None:
    corpus = create_corpus(tmp_path)
    open_corpus(NAME, tmp_path / "store", tmp_path / "cache")
    path = find_file(corpus, "train-00000.arrow")
    path.rename(tmp_path / "outside")
    SPECIAL_FILES[kind](path)
    with pytest.raises(MemtuneError, match=r"train-00000\.arrow"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache")


def test_a_link_to_a_file_of_the_same_store_is_followed(tmp_path: Path) -> None:
    path = find_file(create_corpus(tmp_path), "train-00000.arrow")
    path.rename(tmp_path / "store" / "shared.arrow")
    path.symlink_to("../../shared.arrow")
    assert open_corpus(NAME, tmp_path / "store", tmp_path / "cache")["train"].token_count


def test_a_store_behind_a_link_is_opened(tmp_path: Path) -> None:
    create_corpus(tmp_path)
    (tmp_path / "link").symlink_to("store")
    assert open_corpus(NAME, tmp_path / "link", tmp_path / "cache")["train"].token_count


@pytest.fixture
def linked_name(tmp_path: Path) -> CorpusStore:
    """A store in which the name "small" is a link to a corpus elsewhere."""
    create_corpus(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / NAME).symlink_to(tmp_path / "store" / NAME)
    return CorpusStore.open(tmp_path / "other")


def test_a_linked_corpus_name_is_not_opened(linked_name: CorpusStore, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="small is a symbolic link"):
        open_corpus(NAME, linked_name, tmp_path / "cache")
    assert list_corpora(linked_name) == []


def test_an_import_does_not_follow_a_linked_corpus_name(linked_name: CorpusStore, tmp_path: Path) -> None:
    before = sorted((tmp_path / "store" / NAME).rglob("*"))
    sources = dict.fromkeys(("train", "valid", "test"), SENTENCES)
    with pytest.raises(CorpusError, match="small is a symbolic link"):
        import_corpus(NAME, sources, linked_name, replace=True, cache=tmp_path / "cache")
    assert sorted((tmp_path / "store" / NAME).rglob("*")) == before


def test_an_import_does_not_truncate_the_target_of_a_linked_lock_file(
    store: CorpusStore, tmp_path: Path
) -> None:
    assert store.local_path
    store.local_path.mkdir()
    (tmp_path / "precious").write_text("content")
    (store.local_path / f".{NAME}.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(MemtuneError, match=r"lock .* is a symbolic link"):
        import_corpus(NAME, dict.fromkeys(("train", "valid", "test"), SENTENCES), store)
    assert (tmp_path / "precious").read_text() == "content"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_read_permission_is_named(tmp_path: Path) -> None:
    path = find_file(create_corpus(tmp_path), "train-00000.arrow")
    path.chmod(0)
    with pytest.raises(MemtuneError, match="cannot read"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache")


def write_arrow(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def make_shard(ids: Sequence[int | None], offsets: list[int], dtype: pa.DataType | None = None) -> bytes:
    """A shard with any offsets: Arrow refuses to build one, so they replace those of a valid shard."""
    valid = pa.array([0] * (len(offsets) - 1) + [len(ids)], pa.int32())
    column = pa.ListArray.from_arrays(valid, pa.array(ids, dtype or pa.uint16()))
    content = pa.py_buffer(write_arrow(pa.RecordBatch.from_arrays([column], names=["tokens"])))
    stored = pa.ipc.open_file(pa.BufferReader(content)).get_batch(0).column(0).buffers()[1]
    start = stored.address - content.address
    data = bytearray(content)
    struct.pack_into(f"<{len(offsets)}i", data, start, *offsets)
    return bytes(data)


WRONG_SHARDS = {
    "an offset beyond the ids": make_shard([1, 0], [0, 1_000_000]),
    "a falling offset": make_shard([1, 0, 2, 0], [0, 4, 2]),
    "a negative offset": make_shard([1, 0], [-1_000_000, 2]),
    "ids before the first sentence": make_shard([1, 0, 2, 0], [2, 4]),
    "ids after the last sentence": make_shard([1, 0, 2, 0], [0, 2]),
    "an empty sentence": make_shard([1, 0], [0, 0, 2]),
    "no sentence": make_shard([], [0]),
    "a missing id": make_shard([1, None], [0, 2]),
    "ids of another type": make_shard([1, 0], [0, 2], pa.int64()),
    "an id outside the vocabulary": make_shard([60_000, 0], [0, 2]),
}


@pytest.mark.parametrize("problem", WRONG_SHARDS)
def test_a_shard_with_wrong_content_and_an_agreeing_digest_is_refused(problem: str, tmp_path: Path) -> None:
    corpus = create_corpus(tmp_path)
    path = find_file(corpus, "train-00000.arrow").relative_to(corpus)
    replace_content(corpus, str(path), WRONG_SHARDS[problem])
    with pytest.raises(CorpusError, match=r"train-00000\.arrow"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache2")
    assert any("train-00000.arrow" in line for line in verify_corpus(NAME, tmp_path / "store"))


def test_a_shard_with_more_rows_than_its_buffers_does_not_crash_the_process(tmp_path: Path) -> None:
    """The metadata of the only batch has the number of rows twice: for the batch and for its column."""
    shard = make_shard([1] * 12_344 + [0], list(range(12_346)))
    metadata, body = shard[:1000], shard[1000:]
    for rows in (2**20, 2**40, 2**62, -1):
        (folder := tmp_path / f"{rows} rows").mkdir()
        corpus = create_corpus(folder)
        path = str(find_file(corpus, "train-00000.arrow").relative_to(corpus))
        altered = metadata.replace(struct.pack("<q", 12_345), struct.pack("<q", rows)) + body
        assert altered != shard
        replace_content(corpus, path, altered)
    opened = open_in_process(*tmp_path.iterdir())
    assert len(opened) == 4
    assert [name for name, lines in opened.items() if not any("refused:" in line for line in lines)] == []


def test_vectors_with_fewer_rows_than_values_are_refused(tmp_path: Path) -> None:
    corpus = create_corpus(tmp_path)
    path = find_file(corpus, "vectors.arrow")
    numbers = np.frombuffer(path.read_bytes()[: path.stat().st_size // 8 * 8], np.int64).copy()
    rows = json.loads((corpus / "manifest.json").read_bytes())["vocabulary"]["size"]
    numbers[numbers == rows] = 1
    altered = numbers.tobytes() + path.read_bytes()[numbers.nbytes :]
    replace_content(corpus, str(path.relative_to(corpus)), altered)
    (problem,) = verify_corpus(NAME, tmp_path / "store")
    assert problem.endswith("vectors.arrow: the manifest has other counts of rows or columns")
    with pytest.raises(CorpusError, match=r"vectors\.arrow"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache2")


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_file_is_refused_before_it_fills_the_memory(compression: str, tmp_path: Path) -> None:
    corpus = create_corpus(tmp_path)
    path = str(find_file(corpus, "train-00000.arrow").relative_to(corpus))
    length = 2**24
    column = pa.ListArray.from_arrays(pa.array([0, length], pa.int32()), pa.array([1] * length, pa.uint16()))
    content = write_arrow(pa.RecordBatch.from_arrays([column], names=["tokens"]), compression)
    del column
    assert len(content) < length
    replace_content(corpus, path, content)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorpusError, match=r"train-00000\.arrow is compressed"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache2")
    assert pa.total_allocated_bytes() - before < length


TABLE_VALUES = [
    ("completion", "first", 2**40),
    ("completion", "candidates", 100),
    ("completion", "blank", 50),
    ("completion", "answer", 100),
    ("agreement", "sentence", -1),
    ("agreement", "verb", 1000),
    ("agreement", "wrong", 10_000),
    ("agreement", "attractors", -2),
    ("sentiment", "start", -5),
    ("sentiment", "stop", 1000),
    ("sentiment", "label", 9),
    ("inference", "premise", 1000),
    ("inference", "label", -7),
]


@pytest.mark.parametrize(("kind", "name", "value"), TABLE_VALUES)
def test_a_table_that_refers_outside_its_split_is_refused(
    kind: str, name: str, value: int, tmp_path: Path
) -> None:
    corpus = create_corpus(tmp_path)
    path = find_file(corpus, f"train-{kind}.arrow")
    batch = pa.ipc.open_file(path.read_bytes()).get_batch(0)
    index = batch.schema.get_field_index(name)
    column = pa.array([value] * len(batch), batch.schema.field(name).type)
    content = write_arrow(batch.set_column(index, batch.schema.field(name), column))
    replace_content(corpus, str(path.relative_to(corpus)), content)
    with pytest.raises(CorpusError, match=f"train-{kind}.arrow: .* of row 0 must be"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache2")


@pytest.mark.parametrize("words", [[-2, 0], [0, 5]], ids=["before", "after"])
def test_a_tree_with_a_head_outside_its_sentence_is_refused(words: list[int], tmp_path: Path) -> None:
    corpus = create_corpus(tmp_path)
    path = find_file(corpus, "train-trees.arrow")
    table = pa.ipc.open_file(path.read_bytes()).read_all()
    heads = table["heads"].to_pylist()
    heads[-1] = words
    table = table.set_column(0, table.schema.field(0), pa.array(heads, table.schema.field(0).type))
    replace_content(corpus, str(path.relative_to(corpus)), write_arrow(table.to_batches()[0]))
    with pytest.raises(CorpusError, match="heads of row"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache2")


MANIFESTS = {
    "nested brackets": '{"a":' * 100_000,
    "5,000 digits": json.dumps({"schema_version": 1})[:-1] + ', "name": ' + "1" * 5_000 + "}",
    "a version of 5,000 digits": '{"schema_version": ' + "1" * 5_000 + "}",
    "a lone surrogate": '{"schema_version": 2, "name": "\\ud800"}',
    "a lone surrogate as a name": '{"schema_version": 2, "\\ud800": 1}',
}


@pytest.mark.parametrize("problem", MANIFESTS)
def test_a_hostile_manifest_is_refused_with_its_path(problem: str, tmp_path: Path) -> None:
    corpus = create_corpus(tmp_path)
    (corpus / "manifest.json").write_text(MANIFESTS[problem])
    with pytest.raises(CorpusError, match=r"manifest\.json: not a manifest") as refused:
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache")
    str(refused.value).encode()


def test_a_manifest_of_unbounded_size_is_refused_without_reading_it(tmp_path: Path) -> None:
    corpus = create_corpus(tmp_path)
    with (corpus / "manifest.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(MemtuneError, match=r"manifest\.json is larger than 67108864 bytes"):
        open_corpus(NAME, tmp_path / "store", tmp_path / "cache")


def test_every_kind_of_file_is_in_the_crafted_corpus(tmp_path: Path) -> None:
    manifest = json.loads((create_corpus(tmp_path) / "manifest.json").read_bytes())
    assert len(list_records(manifest)) == 2 + 3 + 5 * 3
