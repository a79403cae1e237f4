"""Folders in storage: local paths and URIs behave alike, and documents are whole or absent."""

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from memtune.errors import StorageError
from memtune.storage.folder import Folder


@pytest.fixture(params=["path", "uri"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder.open(str(tmp_path) if request.param == "path" else f"file://{tmp_path}") / "study"


def test_a_document_reads_as_it_was_written(folder: Folder) -> None:
    folder.write_json("latest.json", ["b", "a"])
    folder.write_json("latest.json", ["c", "b"])
    assert folder.read_json("latest.json") == ["c", "b"]
    assert folder.list_names() == ["latest.json"], "a temporary file remains"


def test_missing_files_and_folders_read_as_none_and_empty(folder: Folder) -> None:
    assert folder.read_json("latest.json") is None
    assert (folder / "nothing").list_names() == []
    (folder / "nothing").delete()


def test_an_uploaded_folder_downloads_unchanged(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "weights").write_bytes(b"\x00\x01")
    (folder / "0001").upload(tmp_path / "local")
    (folder / "0001").download(tmp_path / "back")
    assert (tmp_path / "back" / "weights").read_bytes() == b"\x00\x01"
    (folder / "0001").delete()
    assert folder.list_names() == []


def test_a_document_that_is_not_json_is_refused(folder: Folder, tmp_path: Path) -> None:
    folder.write_json("latest.json", [])
    (tmp_path / "study" / "latest.json").write_text("{")
    with pytest.raises(StorageError, match=r"latest\.json is not JSON"):
        folder.read_json("latest.json")


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        (Folder.open(str(tmp_path)) / "file").write_json("latest.json", [])


def test_a_uri_with_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(StorageError, match="cannot open storage"):
        Folder.open("gopher://host/studies")


class HostileStore:
    """An object store with a key that leads out of the folder: such stores allow any name."""

    type_name = "s3"

    def __init__(self, key: str) -> None:
        self._key = key

    def get_file_info(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        assert selector.recursive
        return [fs.FileInfo(self._key, type=fs.FileType.File, size=4)]


@pytest.mark.parametrize(
    "key", ["bucket/c/../../written", "bucket/c/./../x", "bucket/c//x", "bucket/c", "other/x"]
)
def test_a_key_that_leads_out_of_the_folder_is_refused(key: str, tmp_path: Path) -> None:
    """Whoever writes to a bucket would otherwise write to every folder of its readers."""
    store: Any = HostileStore(key)
    with pytest.raises(StorageError, match="leads out of the folder"):
        Folder(store, "bucket/c").download(tmp_path / "target")
    assert [path.name for path in tmp_path.rglob("*")] == ["target"]


class VanishingFolder(HostileStore):
    """An object store in which another process deletes a folder after this one has found it."""

    def get_file_info(self, path: str) -> fs.FileInfo:
        return fs.FileInfo(path, type=fs.FileType.Directory)

    def delete_dir(self, path: str) -> None:
        self.asked = path
        raise FileNotFoundError(2, f"Path does not exist '{path}'")


def test_a_folder_that_another_process_deletes_at_the_same_time_is_no_error() -> None:
    store: Any = VanishingFolder("")
    Folder(store, "bucket/study").delete()
    assert store.asked == "bucket/study"
