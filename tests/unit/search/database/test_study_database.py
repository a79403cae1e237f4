import os
import resource
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import optuna
import pytest

from memtune.errors import StorageError, StudyError
from memtune.search.compatibility import JournalLock
from memtune.search.database.study_database import CrashSafeJournal, open_study_database


@pytest.mark.parametrize("url", ["sqlite:///{}/new/study.db", "journal://{}/new/study.log"])
def test_a_new_storage_is_created_and_reopened(open_study, tmp_path, url):
    url = url.format(tmp_path)
    proposal = open_study(url=url).ask()
    assert open_study(url=url).list_unfinished() == [proposal]


def test_a_journal_may_be_named_relative_to_the_working_folder(open_study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    proposal = open_study(url="journal://studies/study.log").ask()
    monkeypatch.chdir("studies")
    assert open_study(url="journal://study.log").list_unfinished() == [proposal]


@pytest.mark.parametrize("url", ["mysql://host/database", "study.db", "", "redis://localhost"])
def test_an_unknown_kind_of_storage_is_refused_with_the_known_ones(url):
    with pytest.raises(StorageError, match=r"use sqlite:///FILE, postgresql://.* or journal:///FILE"):
        open_study_database(url)


@pytest.mark.parametrize(
    ("url", "message"), [("sqlite:///{}", "cannot be opened"), ("journal://{}", "is not a regular file")]
)
def test_a_folder_is_refused(tmp_path, url, message):
    with pytest.raises(StorageError, match=message):
        open_study_database(url.format(tmp_path))


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "study.db").write_bytes(os.urandom(4096))
    with pytest.raises(StorageError, match="cannot be opened"):
        open_study_database(f"sqlite:///{tmp_path}/study.db")


def test_a_file_that_is_not_a_journal_is_refused(tmp_path):
    (tmp_path / "study.log").write_text("What is this?\nNo journal.\n")
    with pytest.raises(StudyError, match="is damaged"):
        open_study_database(f"journal://{tmp_path}/study.log")


def test_an_error_does_not_show_the_password():
    with pytest.raises(StorageError) as raised:
        open_study_database("postgresql://reader:secret@localhost:1/studies")
    assert "secret" not in str(raised.value)


def test_a_journal_on_a_full_disk_has_no_incomplete_line_afterwards(open_study, storage):
    """The file may not grow beyond a few bytes, as on a full disk; then the limit is lifted."""
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
    (outcome,) = proposals.list_outcomes()
    assert outcome.curve == {10: 4.0}
    assert [trial.identity for trial in open_study().list_unfinished()] == [first.identity]


def test_what_a_journal_holds_of_its_file_does_not_grow_with_the_trials(tmp_path: Path) -> None:
    journal = CrashSafeJournal(tmp_path / "other.log")
    storage = optuna.storages.JournalStorage(journal)
    study = optuna.create_study(storage=storage)
    sizes = []
    for _ in range(4):
        for _ in range(10):
            study.tell(study.ask(), 1.0)
        sizes.append(len(vars(journal)["_log_number_offset"]))
    assert len(set(sizes)) == 1


def test_a_writer_whose_lock_was_taken_continues(tmp_path: Path) -> None:
    """Another writer takes the lock from it, so its release finds no lock and raises no error."""
    lock = tmp_path / "study.log.lock"
    stopped, other = (JournalLock(str(tmp_path / "study.log")) for _ in range(2))
    stopped.acquire()
    assert lock.is_symlink()
    other.release()
    stopped.release()
    assert not lock.is_symlink()
    assert stopped.acquire()
    assert lock.is_symlink()


def test_drivers_that_create_a_database_at_once_all_open_it(tmp_path):
    url, drivers = f"sqlite:///{tmp_path}/study.db", 8
    together = Barrier(drivers, timeout=60)

    def open_together(_: int) -> int:
        together.wait()
        return len(open_study_database(url).get_all_studies())

    with ThreadPoolExecutor(drivers) as pool:
        assert list(pool.map(open_together, range(drivers))) == [0] * drivers


def test_a_database_that_stays_incomplete_is_an_error_after_the_timeout(tmp_path, monkeypatch):
    """A driver was killed after it had created a table of another layout."""
    monkeypatch.setattr("memtune.search.database.study_database.CREATE_TABLES_TIMEOUT_SECONDS", 0.3)
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection:
        connection.execute("create table version_info (wrong text)")
    with pytest.raises(StorageError, match="cannot be opened: no such column"):
        open_study_database(f"sqlite:///{tmp_path}/study.db")


def test_an_error_of_a_complete_database_is_raised_at_once(tmp_path, monkeypatch):
    """The schema's revision is stored, so no other driver is creating tables; a pause of NaN is an error."""
    monkeypatch.setattr("memtune.search.database.study_database.CREATE_TABLES_RETRY_SECONDS", float("nan"))
    with closing(sqlite3.connect(tmp_path / "study.db")) as connection, connection:
        connection.execute("create table version_info (wrong text)")
        connection.execute("create table alembic_version (version_num text)")
        connection.execute("insert into alembic_version values ('v3.2.0.a')")
    with pytest.raises(StorageError, match="cannot be opened: no such column"):
        open_study_database(f"sqlite:///{tmp_path}/study.db")
