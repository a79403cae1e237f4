"""The contract of formats whose records hold texts: every way to store a text gives the same corpus."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtune.corpora import FORMATS, DataSet, TextFile, find_splits, import_corpus
from memtune.corpora.sources.line_reader import BAD_ENTRIES, LineReader
from memtune.corpora.sources.source_file import SourceFile
from memtune.errors import ArgumentError, CorpusError

TEXTS = ["the café sleeps", "it  rains\nand pours", "", 'a "quoted", word', "\u00e9t\u00e9\t\u4e2d"]
SENTENCES = [line.split() for text in TEXTS for line in text.split("\n") if line.split()]
SPLITS = ("train", "valid", "test")


def write_json_lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)).encode()


def write_csv(texts: list[str]) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([["id", "text"], *enumerate(texts)])
    return file.getvalue().encode()


def make_table(texts: list[str]) -> pa.Table:
    return pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.string())})


def write_parquet(texts: list[str]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(make_table(texts), sink, row_group_size=2, compression="zstd")
    return sink.getvalue()


def write_arrow(texts: list[str], new_writer: Callable) -> bytes:
    sink = io.BytesIO()
    with new_writer(sink, make_table(texts).schema) as writer:
        writer.write_table(make_table(texts), max_chunksize=2)
    return sink.getvalue()


WRITERS: dict[str, tuple[str, Callable[[list[str]], bytes]]] = {
    "jsonl": ("jsonl", write_json_lines),
    "csv": ("csv", write_csv),
    "parquet": ("parquet", write_parquet),
    "arrow file": ("arrow", lambda texts: write_arrow(texts, pa.ipc.new_file)),
    "arrow stream": ("arrow", lambda texts: write_arrow(texts, pa.ipc.new_stream)),
}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip in two members": lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:]),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def read_sentences(format: str, path: Path) -> list[list[str]]:
    sentences = []
    with closing(LineReader(path)) as reader:
        for block in FORMATS[format].read(reader, FORMATS[format].options()):
            words = block.words.to_pylist()
            for length in block.lengths:
                sentences.append(words[: length - 1])
                words = words[length:]
    return sentences


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_text_survives_each_format_and_compression(tmp_path, kind, compression):
    format, write = WRITERS[kind]
    (tmp_path / "text").write_bytes(COMPRESSIONS[compression](write(TEXTS)))
    assert read_sentences(format, tmp_path / "text") == SENTENCES


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("compression", ["plain", "zstd"])
def test_a_text_survives_a_pipe(tmp_path, kind, compression):
    format, write = WRITERS[kind]
    os.mkfifo(tmp_path / "pipe")
    data = COMPRESSIONS[compression](write(TEXTS))
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
    writer.start()
    assert read_sentences(format, tmp_path / "pipe") == SENTENCES
    writer.join(timeout=10)


# Line ends other than LF and control characters have tests of their own.
WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\x85\u2028\u2029"), max_size=9
)


@pytest.mark.parametrize("kind", WRITERS)
@given(texts=st.lists(st.lists(WORDS, max_size=5).map(" ".join), max_size=8))
@settings(max_examples=30, deadline=None)
def test_every_text_survives_each_format(tmp_path_factory, kind, texts):
    format, write = WRITERS[kind]
    path = tmp_path_factory.mktemp("round") / "text"
    path.write_bytes(write(texts))
    assert read_sentences(format, path) == [text.split() for text in texts if text.split()]


def import_digest(sources, folder: Path) -> str:
    store, cache = folder / "store", folder / "cache"
    return import_corpus("any", sources, store, replace=True, cache=cache).manifest.digest


@pytest.fixture
def plain_digest(tmp_path: Path) -> str:
    path = tmp_path / "plain.txt"
    path.write_text("\n".join(TEXTS))
    return import_digest(dict.fromkeys(SPLITS, TextFile(path)), tmp_path / "plain")


@pytest.mark.parametrize("kind", WRITERS)
def test_each_format_gives_the_digest_of_the_plain_text(tmp_path, plain_digest, kind):
    format, write = WRITERS[kind]
    (tmp_path / "text").write_bytes(write(TEXTS))
    assert import_digest(dict.fromkeys(SPLITS, TextFile(tmp_path / "text", format)), tmp_path) == plain_digest


@pytest.mark.parametrize("place", ["parts", "parts/*.txt.gz", "*/[0-9].txt.gz"])
def test_the_files_of_a_folder_or_a_pattern_are_one_text(tmp_path, plain_digest, place):
    (tmp_path / "parts").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "parts" / f"{number}.txt.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "parts" / ".hidden").write_bytes(b"\0")
    sources = dict.fromkeys(SPLITS, TextFile(tmp_path / place))
    manifest = import_corpus("any", sources, tmp_path / "store", cache=tmp_path / "cache").manifest
    assert manifest.digest == plain_digest
    assert len(manifest.sources["train"].beside) == len(TEXTS)


def test_a_uri_of_a_local_file_is_read(tmp_path, plain_digest):
    source = TextFile(f"file://{tmp_path}/plain.txt")
    assert import_digest(dict.fromkeys(SPLITS, source), tmp_path) == plain_digest


def test_a_pattern_without_files_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"no file matches .*\*\.gz; in a shell, write the pattern in quo"):
        SourceFile(tmp_path / "*.gz")


@pytest.mark.parametrize("uri", ["https://example.org/a.txt", "http://example.org/a.txt"])
def test_a_web_address_is_refused_with_a_command_that_reads_it(uri):
    with pytest.raises(CorpusError, match=r"is a web address; .* curl -sSfL ADDRESS \| memtune corpus imp"):
        SourceFile(uri)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_missing_column_is_refused_with_those_that_exist(tmp_path, kind):
    format, write = WRITERS[kind]
    (tmp_path / "text").write_bytes(write(TEXTS))
    reader = LineReader(tmp_path / "text")
    with pytest.raises(CorpusError, match=r'no column "body"; there is id, text: choose one with --opt'):
        list(FORMATS[format].read(reader, FORMATS[format].options.model_validate({"column": "body"})))


TWICE = pa.table([["no text"], ["the cat"]], names=["text", "text"])


def write_arrow_twice() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, TWICE.schema) as writer:
        writer.write_table(TWICE)
    return sink.getvalue()


def write_parquet_twice() -> bytes:
    sink = io.BytesIO()
    pq.write_table(TWICE, sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("format", "write"),
    [
        ("csv", lambda: b"text,text\nno text,the cat\n"),
        ("parquet", write_parquet_twice),
        ("arrow", write_arrow_twice),
    ],
)
def test_two_columns_of_the_name_are_refused(tmp_path, format, write):
    (tmp_path / "text").write_bytes(write())
    with pytest.raises(CorpusError, match=r'text: (line 1: )?2 columns are named "text"; rename one'):
        read_sentences(format, tmp_path / "text")


UNQUOTED = 'id\ttext\n1\tthe cat\n2\t"No" he said\n3\t"sleeps\n4\tthe dog\n'


def read_csv(content: str, folder: Path, **options: str) -> list[str]:
    (folder / "text").write_text(content)
    chosen = FORMATS["csv"].options.model_validate({"delimiter": "tab", **options})
    blocks = FORMATS["csv"].read(LineReader(folder / "text"), chosen)
    text = " ".join(word for block in blocks for word in block.words.to_pylist())
    return [sentence.strip() for sentence in text.split("\0")[:-1]]


def test_quotation_marks_can_be_part_of_the_text(tmp_path):
    assert read_csv(UNQUOTED, tmp_path, quotes="text") == ["the cat", '"No" he said', '"sleeps', "the dog"]


@pytest.mark.parametrize(("content", "line"), [(UNQUOTED, 3), (UNQUOTED.replace('"No"', "No"), 4)])
def test_a_broken_quotation_is_named_with_its_first_line_and_the_fix(tmp_path, content, line):
    with pytest.raises(CorpusError, match=rf"text: line {line}: not CSV \(.*\); .* --option quotes=text"):
        read_csv(content, tmp_path)


def test_a_record_of_several_lines_is_named_with_its_first_one(tmp_path):
    with pytest.raises(CorpusError, match=r"text: line 3: 1 column instead of 2 as in the header"):
        read_csv('id\ttext\n1\tthe cat\n"2\nand\nmore"\n', tmp_path)


@pytest.mark.parametrize("data", [TWICE, TWICE.to_pandas()], ids=["arrow", "pandas"])
def test_two_columns_of_a_data_set_are_refused(data):
    with pytest.raises(CorpusError, match='2 columns are named "text"; rename one'):
        list(DataSet(data).read_texts())


@pytest.mark.parametrize("kind", ["parquet", "arrow file"])
def test_a_column_of_numbers_is_refused_with_its_type(tmp_path, kind):
    format, write = WRITERS[kind]
    (tmp_path / "text").write_bytes(write(TEXTS))
    reader = LineReader(tmp_path / "text")
    with pytest.raises(CorpusError, match='the column "id" holds int64, not text'):
        list(FORMATS[format].read(reader, FORMATS[format].options.model_validate({"column": "id"})))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_off_is_refused(tmp_path, kind, share):
    format, write = WRITERS[kind]
    data = write([f"{text} {number}" for number in range(200) for text in TEXTS])
    compressed = gzip.compress(data)
    (tmp_path / "text").write_bytes(compressed[: int(share * len(compressed))])
    with pytest.raises(CorpusError, match="the gzip data are damaged or cut off"):
        read_sentences(format, tmp_path / "text")
    if format in ("parquet", "arrow"):
        (tmp_path / "text").write_bytes(data[: int(share * len(data))])
        with pytest.raises(CorpusError, match="is damaged"):
            read_sentences(format, tmp_path / "text")


@pytest.mark.parametrize("text", ["the \0 cat", ["the", "\ud800"]])
def test_a_bad_text_of_json_is_named_with_its_line_and_can_be_left_out(tmp_path, text):
    lines = ['{"text": "the cat"}'] * 200
    lines[6] = json.dumps({"text": text})
    (tmp_path / "text").write_text("\n".join(lines))
    with pytest.raises(CorpusError, match=r"text: line 7: a (NUL|lone surrogate) in .*; --skip-bad leaves"):
        read_sentences("jsonl", tmp_path / "text")
    reader = LineReader(tmp_path / "text", skip_bad=True)
    blocks = list(FORMATS["jsonl"].read(reader, FORMATS["jsonl"].options()))
    assert (sum(len(block.lengths) for block in blocks), reader.skipped) == (199, {BAD_ENTRIES: 1})


@pytest.mark.parametrize("kind", ["parquet", "arrow file"])
def test_a_bad_text_of_a_column_is_named_with_its_row(tmp_path, kind):
    format, write = WRITERS[kind]
    (tmp_path / "text").write_bytes(write([*TEXTS, "a\0b"]))
    with pytest.raises(CorpusError, match=r"text: row 6: a NUL in 'a\\x00b'; remove it from the text"):
        read_sentences(format, tmp_path / "text")


def test_lists_of_words_and_missing_values_are_read_from_columns(tmp_path):
    table = pa.table({"text": pa.array([["the", "cat"], None, ["sleeps"]], pa.list_(pa.string()))})
    pq.write_table(table, tmp_path / "text")
    reader = LineReader(tmp_path / "text")
    (block,) = FORMATS["parquet"].read(reader, FORMATS["parquet"].options())
    assert block.words.to_pylist() == ["the", "cat", "\0", "sleeps", "\0"]
    assert reader.skipped == {"records without a text": 1}


def test_prose_in_a_column_becomes_sentences_of_words(tmp_path):
    (tmp_path / "text").write_bytes(write_json_lines(["It rains. Mr. Cat\nsleeps."]))
    reader = LineReader(tmp_path / "text")
    (block,) = FORMATS["jsonl"].read(reader, FORMATS["jsonl"].options.model_validate({"content": "prose"}))
    assert block.words.to_pylist() == ["It", "rains", ".", "\0", "Mr.", "Cat", "sleeps", ".", "\0"]


class HuggingFaceLike:
    """The part of `datasets.Dataset` that an import uses."""

    def __init__(self, texts: list[str]) -> None:
        self.column_names = ["id", "text"]
        self._texts = texts

    def select_columns(self, names: list[str]) -> "HuggingFaceLike":
        assert names == ["text"]
        return self

    def __iter__(self):
        return ({"text": text} for text in self._texts)

    def iter(self, batch_size: int):
        for start in range(0, len(self._texts), batch_size):
            yield {"text": self._texts[start : start + batch_size]}


DATA_SETS = {
    "datasets": HuggingFaceLike(TEXTS),
    "arrow": make_table(TEXTS),
    "pandas": make_table(TEXTS).to_pandas(),
    "records": [{"text": text} for text in TEXTS],
    "texts": list(TEXTS),
    "series": make_table(TEXTS).to_pandas()["text"],
}


@pytest.mark.parametrize("kind", DATA_SETS)
def test_a_data_set_of_a_program_gives_the_digest_of_the_plain_text(tmp_path, plain_digest, kind):
    assert import_digest(dict.fromkeys(SPLITS, DataSet(DATA_SETS[kind])), tmp_path) == plain_digest


MISSING: dict[str, Any] = {
    "pandas": pd.DataFrame({"text": [*TEXTS, None]}),
    "pandas objects": pd.DataFrame({"text": pd.Series([*TEXTS, float("nan")], dtype=object)}),
    "series": pd.Series([*TEXTS, pd.NA], dtype="string"),
    "arrow": pa.table({"text": pa.array([*TEXTS, None], pa.string())}),
    "texts": [*TEXTS, None],
}


@pytest.mark.parametrize("kind", MISSING)
def test_missing_texts_of_a_program_are_left_out_and_counted(tmp_path, plain_digest, kind):
    sources = dict.fromkeys(SPLITS, DataSet(MISSING[kind]))
    found = import_corpus("any", sources, tmp_path / "store", cache=tmp_path / "cache")
    assert found.manifest.digest == plain_digest
    assert "1 left out of data set (train): records without a text" in found.warnings


def test_a_row_without_a_text_is_named_with_its_split(tmp_path):
    texts = make_table(TEXTS).to_pandas()["text"]
    sources = dict.fromkeys(SPLITS, DataSet(texts)) | {"valid": DataSet([*texts[:2], float("nan")])}
    with pytest.raises(
        CorpusError, match=r'the valid split: record 2: "text" is NaN, .*; leave out rows without'
    ):
        import_digest(sources, tmp_path)


@pytest.mark.parametrize("kind", ["datasets", "arrow", "pandas", "records"])
def test_a_missing_column_of_a_data_set_is_named_with_the_fix(kind):
    with pytest.raises(CorpusError, match=r"there is .*text: choose one with DataSet\(data, column=NAME\)"):
        list(DataSet(DATA_SETS[kind], column="body").read_texts())


def test_a_mapping_of_columns_or_splits_is_no_data_set():
    with pytest.raises(ArgumentError, match="a mapping of splits is for find_splits"):
        DataSet({"train": TEXTS})


def test_the_splits_of_a_data_set_are_found_by_name(tmp_path, plain_digest):
    splits = find_splits(dict.fromkeys(("train", "validation", "test"), make_table(TEXTS)))
    assert import_digest(splits, tmp_path) == plain_digest
    with pytest.raises(CorpusError, match="no split is called unsupervised"):
        find_splits({"unsupervised": []})
    with pytest.raises(CorpusError, match="a split has two names among train, validation, dev; give one"):
        find_splits({"train": TEXTS, "validation": TEXTS, "dev": TEXTS})


def test_records_without_a_named_column_are_refused_with_the_fix(tmp_path):
    with pytest.raises(CorpusError, match=r"name the column of records: DataSet\(data, column=...\)"):
        import_digest(dict.fromkeys(SPLITS, DATA_SETS["records"]), tmp_path)


def save_data_set(folder: Path, texts: list[str]) -> None:
    """Write what `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(texts):05d}.arrow" for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_bytes(write_arrow([text], pa.ipc.new_stream))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def test_a_folder_saved_by_datasets_is_read(tmp_path, plain_digest):
    save_data_set(tmp_path / "saved" / "train", TEXTS)
    source = TextFile(tmp_path / "saved" / "train", "arrow")
    assert import_digest(dict.fromkeys(SPLITS, source), tmp_path) == plain_digest
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(CorpusError, match=r"holds several splits; name each: --train .*saved/train"):
        import_digest(dict.fromkeys(SPLITS, TextFile(tmp_path / "saved", "arrow")), tmp_path)


@pytest.mark.parametrize("state", ["[]", "{", '{"_data_files": [{"filename": "../secret"}]}', "[" * 5_000])
def test_a_damaged_list_of_files_is_refused(tmp_path, state):
    save_data_set(tmp_path / "saved", TEXTS)
    (tmp_path / "saved" / "state.json").write_text(state)
    with pytest.raises(CorpusError, match=r"state\.json"):
        import_digest(dict.fromkeys(SPLITS, TextFile(tmp_path / "saved", "arrow")), tmp_path)


def test_a_csv_file_with_another_delimiter_is_refused_with_the_option_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"there is text;id: .* delimiter=semicolon"):
        read_csv("text;id\nthe cat;1\n", tmp_path, delimiter="comma")
