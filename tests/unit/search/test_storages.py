import os
import resource
from pathlib import Path

import pytest

from memtune.errors import StorageError
from memtune.search.storages import JournalLock, open_storage


@pytest.mark.parametrize("url", ["sqlite:///{}/new/study.db", "journal://{}/new/study.log"])
def test_a_storage_is_made_where_there_is_none_and_found_again(open_study, tmp_path, url):
    url = url.format(tmp_path)
    proposal = open_study(url=url).ask()
    assert open_study(url=url).unfinished() == [proposal]


def test_a_journal_may_be_named_relative_to_the_working_folder(open_study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    proposal = open_study(url="journal://studies/study.log").ask()
    monkeypatch.chdir("studies")
    assert open_study(url="journal://study.log").unfinished() == [proposal]


@pytest.mark.parametrize("url", ["mysql://host/database", "study.db", "", "redis://localhost"])
def test_an_unknown_kind_of_storage_is_told_with_the_known_ones(url):
    with pytest.raises(StorageError, match=r"use sqlite:///FILE, postgresql://.* or journal:///FILE"):
        open_storage(url)


@pytest.mark.parametrize("url", ["sqlite:///{}", "journal://{}"])
def test_a_folder_is_no_storage(tmp_path, url):
    with pytest.raises(StorageError, match="cannot be opened"):
        open_storage(url.format(tmp_path))


def test_a_file_that_is_no_database_is_told(tmp_path):
    (tmp_path / "study.db").write_bytes(os.urandom(4096))
    with pytest.raises(StorageError, match="cannot be opened"):
        open_storage(f"sqlite:///{tmp_path}/study.db")


def test_a_file_that_is_no_journal_is_told(tmp_path):
    (tmp_path / "study.log").write_text("What is this?\nNo journal.\n")
    with pytest.raises(StorageError, match="cannot be opened"):
        open_storage(f"journal://{tmp_path}/study.log")


def test_a_password_is_not_told():
    with pytest.raises(StorageError) as raised:
        open_storage("postgresql://reader:secret@localhost:1/studies")
    assert "secret" not in str(raised.value)


def test_a_journal_that_could_not_grow_goes_on_where_it_was(open_study, storage):
    """The file may not grow beyond a few bytes more, as on a disk that is full; then it may again."""
    path = Path(storage.removeprefix("journal://"))
    proposals = open_study()
    first = proposals.ask()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
    try:
        proposals.report(first.number, 10, 4.0)
        assert not path.read_bytes().endswith(b"\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (outcome,) = proposals.outcomes()
    assert outcome.curve == {10: 4.0}
    assert open_study().unfinished() == [first]


def test_a_writer_stopped_until_its_lock_was_taken_goes_on(tmp_path):
    """Others take the lock from it; giving back what it no longer has is no fault."""
    stopped, other = (JournalLock(str(tmp_path / "study.log")) for _ in range(2))
    stopped.acquire()
    other.release()
    stopped.release()
    other.acquire()
