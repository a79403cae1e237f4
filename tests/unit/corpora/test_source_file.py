"""Sources: files, folders and pipes are read, others are refused with a fix."""

import bz2
import gzip
import lzma
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from memtune.corpora import TextFile, VectorFile, import_corpus, open_corpus
from memtune.corpora.sources.line_reader import LineReader
from memtune.corpora.sources.source_file import find_kind, list_folder_files
from memtune.errors import CorpusError
from tests.presence import require

OTHER_USER_ID = 65534


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """A folder that a process without privileges can reach; the test runs as such a process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(OTHER_USER_ID)
        try:
            yield folder
        finally:
            if is_root:
                os.seteuid(0)


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    """A FIFO into which a thread writes two lines once."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"the cat sleeps\nthe dog\n",))
    writer.start()
    yield path
    writer.join(timeout=10)


def read_text(path: Path) -> list[str]:
    with closing(LineReader(path, 16)) as reader:
        return [line for _, line in reader.read_lines()]


def test_a_fifo_is_read_like_a_file(fifo):
    assert read_text(fifo) == ["the cat sleeps", "the dog"]


def test_a_pipe_can_be_read_again_from_its_start(fifo):
    with closing(LineReader(fifo, 16)) as reader:
        assert list(reader.reopen().read_lines()) == list(reader.read_lines())


def test_a_fifo_gives_the_same_corpus_as_its_text(fifo, tmp_path, store, cache, import_texts):
    text = "the cat sleeps\nthe dog\n"
    same = import_texts(text, "a dog\n", "a cat\n", name="file").manifest
    sources = {
        split: TextFile(fifo if split == "train" else tmp_path / f"{split}.txt")
        for split in ("train", "valid", "test")
    }
    assert import_corpus("pipe", sources, store, cache=cache).manifest.digest == same.digest


def test_vectors_can_be_read_from_a_fifo(tmp_path, store, cache, write_texts):
    path = tmp_path / "vectors"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"the 1 2\ncat 3 4\n",))
    writer.start()
    import_corpus("small", write_texts(), store, cache=cache, vectors=VectorFile(path))
    writer.join(timeout=10)
    assert require(open_corpus("small", store, cache).manifest.vectors).known == 2


def test_one_pipe_for_two_splits_is_refused_before_it_is_read(tmp_path, store, cache):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(CorpusError, match="is a pipe, which can be read once, and several splits name it"):
        import_corpus("small", dict.fromkeys(("train", "valid", "test"), TextFile(path)), store, cache=cache)


def test_binary_data_from_a_pipe_is_refused_before_its_end(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with (
        subprocess.Popen(["sh", "-c", f"cat /dev/zero > {path}"], stderr=subprocess.DEVNULL),
        pytest.raises(CorpusError, match="byte 0: a NUL byte"),
    ):
        read_text(path)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(path):
    with pytest.raises(CorpusError, match=f"the train file {path} is a terminal or another device; give a"):
        find_kind(Path(path), "the train file")


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(CorpusError, match="is a socket"):
            find_kind(Path("socket"))


@pytest.mark.parametrize("name", ["absent", "file/inside", "nul\0", "x" * 300, "x" * 300 + "*"])
def test_a_path_that_does_not_exist_raises_a_corpus_error(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(CorpusError, match=r"does not exist|cannot read|no file matches"):
        find_kind(tmp_path / name)


def test_a_name_outside_utf8_is_refused(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    path.touch()
    with pytest.raises(CorpusError, match=r"caf\\xe9 is not UTF-8, .*; rename the file"):
        find_kind(path)


def test_a_file_in_an_unreadable_folder_is_reported(unprivileged_folder):
    (unprivileged_folder / "private").mkdir(mode=0o000)
    with pytest.raises(CorpusError, match=r"cannot read the file .*private/text: Permission denied"):
        find_kind(unprivileged_folder / "private" / "text")


def test_an_unreadable_file_is_reported(unprivileged_folder):
    path = unprivileged_folder / "text"
    path.touch(mode=0o000)
    with pytest.raises(CorpusError, match=r"cannot read .*text: Permission denied"):
        read_text(path)


def test_an_unreadable_subfolder_is_refused(unprivileged_folder):
    (unprivileged_folder / "a.txt").touch()
    (unprivileged_folder / "private").mkdir(mode=0o000)
    with pytest.raises(CorpusError, match=r"cannot read the folder .*private: Permission denied; change its"):
        list_folder_files(unprivileged_folder)


def test_files_of_a_folder_are_listed_at_every_depth_but_not_behind_links(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("z", "a/y", "a/b/x"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = [str(path.relative_to(tmp_path)) for path in list_folder_files(tmp_path)]
    assert found == ["a/b/x", "a/y", "z"]


ZIP = b"PK\x03\x04\x14\0"
BINARY = [
    (b"\x1f\x8b\x08\x00", "the gzip data are damaged or cut off"),
    (b"(\xb5/\xfd\x04\x00", "the zstd data are damaged"),
    (ZIP, "byte 5, line 1: a NUL byte, so not text; convert text with iconv, unpack archives, and read Parq"),
    (
        b"\x89PNG\r\n\x1a\n",
        r"byte 0, line 1: not UTF-8 \(0x89, invalid start byte\); convert text",
    ),
    (b"\xff\xfea\0", "byte 3, line 1: a NUL byte"),
]


@pytest.mark.parametrize(("start", "message"), BINARY)
def test_a_binary_file_is_refused_with_a_conversion(tmp_path, start, message):
    path = tmp_path / "file"
    path.write_bytes(start + b"content\n" * 100)
    with pytest.raises(CorpusError, match=message):
        read_text(path)


@pytest.mark.parametrize("content", [ZIP, gzip.compress(b"a text\n", mtime=0)], ids=["zip", "gzip"])
def test_the_content_of_a_compressed_file_is_checked_too(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(CorpusError, match="a NUL byte"):
        read_text(path)


def test_a_book_that_is_binary_is_refused_instead_of_read_as_latin1(tmp_path, store):
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "a.txt").write_bytes(b"%PDF-1.7\0caf\xe9\n")
    source = TextFile(tmp_path / "books", "gutenberg")
    with pytest.raises(CorpusError, match=r"a\.txt: byte 8, line 1: a NUL byte"):
        import_corpus("books", dict.fromkeys(("train", "valid", "test"), source), store)


def compress_zstd(content: bytes) -> bytes:
    return pa.compress(content, "zstd", asbytes=True)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, compress_zstd])
def test_a_small_file_that_expands_without_measure_is_refused(tmp_path, monkeypatch, compress):
    monkeypatch.setattr("memtune.corpora.sources.source_file._FREE_BYTES", 2**20)
    content = b"the cat sleeps\n" * 2**19
    path = tmp_path / "text"
    path.write_bytes(compress(content))
    reader = LineReader(path, block_bytes=2**18)
    message = f"{path}: [0-9,]+ bytes expand to more than [0-9,]+ bytes of text; the limit is 200 times"
    with pytest.raises(CorpusError, match=message):
        list(reader.read_chunks())
    assert reader.bytes_read < len(content) / 2


def test_a_small_text_may_expand_by_any_factor(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"the cat sleeps\n" * 2**19))
    assert sum(map(len, LineReader(path).read_chunks())) == 15 * 2**19


def test_the_size_of_a_folder_is_known_unless_a_file_of_it_is_compressed(tmp_path):
    """Links count as the files that they name, and a compressed file has more text than bytes."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (tmp_path / "elsewhere").write_bytes(bytes(1000))
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "own").write_bytes(bytes(24))
    assert LineReader(folder).size_bytes == 1024
    (folder / "compressed").write_bytes(gzip.compress(b"a cat"))
    assert LineReader(folder).size_bytes is None
