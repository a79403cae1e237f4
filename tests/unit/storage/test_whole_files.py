"""A file that a user names is written whole or not at all."""

from pathlib import Path

import pytest

from memtune.errors import StorageError
from memtune.storage.local_files import write_whole
from tests.file_size_limit import limit_file_size


def test_a_file_that_cannot_be_written_leaves_the_earlier_one(tmp_path: Path) -> None:
    (path := tmp_path / "report.html").write_text("an earlier report")
    with (
        limit_file_size(100),
        pytest.raises(StorageError, match=r"report\.html cannot be written: File too large; choose another"),
    ):
        write_whole(path, bytes(101))
    assert path.read_text() == "an earlier report"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_written_with_the_folders_above_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b.txt", b"content")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"content"
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_device_is_written_directly() -> None:
    write_whole(Path("/dev/null"), b"content")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(StorageError, match="/dev/full cannot be written: No space left on device"):
        write_whole(Path("/dev/full"), b"content")


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written: Is a directory"):
        write_whole(tmp_path, b"content")
