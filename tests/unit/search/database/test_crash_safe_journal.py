"""A journal that is deleted or truncated during a study ends the study with this error."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memtune.errors import StorageError, StudyError
from memtune.search import Lease, Proposals, compatibility
from memtune.search.compatibility import JournalLock
from memtune.search.database.study_database import MISSING_LIMIT_SECONDS, CrashSafeJournal
from tests.cluster.poll import poll_until

CHANGE = {"op_code": 1}


class Clock:
    """Seconds that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.log"


@pytest.fixture
def journal(path: Path, clock: Clock) -> CrashSafeJournal:
    journal = CrashSafeJournal(path, clock)
    journal.append_logs([CHANGE])
    return journal


READS_AND_WRITES = pytest.mark.parametrize(
    "use", [lambda journal: list(journal.read_logs(0)), lambda journal: journal.append_logs([CHANGE])]
)


@READS_AND_WRITES
def test_a_missing_file_is_unavailable_at_first_and_deleted_after_the_limit(
    journal: CrashSafeJournal, path: Path, clock: Clock, use: Callable[[CrashSafeJournal], object]
) -> None:
    path.unlink()
    with pytest.raises(FileNotFoundError):
        use(journal)
    clock.seconds = MISSING_LIMIT_SECONDS
    with pytest.raises(StudyError, match=r"study\.log was deleted while the study was running"):
        use(journal)
    assert not path.exists()


@READS_AND_WRITES
def test_a_file_that_is_shorter_than_it_was_is_refused(
    journal: CrashSafeJournal, path: Path, use: Callable[[CrashSafeJournal], object]
) -> None:
    path.write_bytes(b"")
    with pytest.raises(StudyError, match="replaced or truncated"):
        use(journal)


def test_a_file_that_returns_is_used_again(journal: CrashSafeJournal, path: Path, clock: Clock) -> None:
    path.rename(path.with_name("moved"))
    with pytest.raises(FileNotFoundError):
        journal.append_logs([CHANGE])
    path.with_name("moved").rename(path)
    journal.append_logs([CHANGE])
    path.rename(path.with_name("moved"))
    clock.seconds = MISSING_LIMIT_SECONDS
    with pytest.raises(FileNotFoundError):
        journal.append_logs([CHANGE])


def test_a_driver_between_two_reports_finds_that_its_journal_was_deleted(
    open_study: Callable[..., Proposals], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposals = open_study()
    proposals.ask()
    Path(storage.removeprefix("journal://")).unlink()
    proposals.check()
    monkeypatch.setattr("memtune.search.database.study_database.MISSING_LIMIT_SECONDS", 0.0)
    with pytest.raises(StudyError, match="was deleted"):
        proposals.list_outcomes()


def test_a_driver_whose_lease_file_was_deleted_ends_with_that_error(
    storage: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("memtune.search.database.study_database.MISSING_LIMIT_SECONDS", 0.0)

    def lose_lease_file() -> None:
        with Lease(storage, "s", heartbeat_seconds=600.0) as lease:
            Path(f"{storage.removeprefix('journal://')}.drivers").unlink()
            lease._last_renewal -= 1000.0
            lease.check()

    with pytest.raises(StudyError, match=r"study\.log\.drivers was deleted"):
        lose_lease_file()
    assert "the lease of study s cannot be released: its file is gone" in caplog.text


def test_records_wait_for_a_lease_that_cannot_be_checked_with_the_name_of_its_database(storage: str) -> None:
    with Lease(storage, "s", heartbeat_seconds=600.0) as lease:
        file = Path(f"{storage.removeprefix('journal://')}.drivers")
        moved = file.rename(file.with_name("moved"))
        lease._last_renewal -= 1000.0
        with pytest.raises(StorageError, match=r"study database .*study\.log does not answer"):
            lease.check_for_records()
        moved.rename(file)


@pytest.mark.parametrize("target", ["/dev/zero", "pipe", "folder"])
def test_a_journal_that_is_no_file_is_refused_unread(path: Path, target: str) -> None:
    """A device never ends: reading it would take all memory."""
    os.mkfifo(path.with_name("pipe"))
    path.with_name("folder").mkdir()
    path.symlink_to(target)
    with pytest.raises(StorageError, match=r"study\.log is not a regular file"):
        CrashSafeJournal(path)


DEEP, LONG = b"[" * 100_000, b'{"op_code": ' + b"9" * 5000 + b"}"


@pytest.mark.parametrize("line", [b"garbage", b"5", b"[]", b'{"op": 1}', b"\xff\xfe", DEEP, LONG])
def test_a_line_that_optuna_did_not_write_is_named(path: Path, line: bytes) -> None:
    CrashSafeJournal(path).append_logs([CHANGE])
    path.write_bytes(line + b"\n" + path.read_bytes())
    with pytest.raises(StudyError, match=r"study\.log is damaged: .*; restore it"):
        list(CrashSafeJournal(path).read_logs(0))


def test_a_line_that_another_writer_left_incomplete_is_cut_before_the_next_write(
    journal: CrashSafeJournal, path: Path
) -> None:
    """Another study's driver was killed, or had no space left, after this one opened the journal."""
    with path.open("a") as other:
        other.write('{"op_code": 5, "worker')
    journal.append_logs([CHANGE])
    assert list(CrashSafeJournal(path).read_logs(0)) == [CHANGE, CHANGE]


def test_a_journal_with_an_incomplete_line_is_read_without_a_write(
    journal: CrashSafeJournal, path: Path
) -> None:
    with path.open("a") as other:
        other.write('{"op_code": 5, "worker')
    before = path.read_bytes()
    assert list(CrashSafeJournal(path).read_logs(0)) == [CHANGE]
    assert path.read_bytes() == before


def test_a_line_that_another_process_has_begun_is_no_part_of_the_file_yet(
    journal: CrashSafeJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is killed, the next writer cuts the line, and the file is shorter than it was."""
    release = JournalLock.release

    def release_to_a_writer_that_is_killed(lock: JournalLock) -> None:
        release(lock)
        with path.open("a") as other:
            other.write('{"op_code": 5, "worker' + 100 * "x")

    with monkeypatch.context() as patched:
        patched.setattr(JournalLock, "release", release_to_a_writer_that_is_killed)
        journal.append_logs([CHANGE])
    CrashSafeJournal(path).append_logs([CHANGE])
    journal.append_logs([CHANGE])
    assert list(journal.read_logs(0)) == 4 * [CHANGE]


def test_a_writer_says_why_it_waits_for_the_lock_of_a_killed_process(
    journal: CrashSafeJournal, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compatibility, "WAIT_MESSAGE_SECONDS", 0.0)
    killed = JournalLock(str(path))
    killed.acquire()
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(journal.append_logs, [CHANGE])
        poll_until(lambda: caplog.messages, "a message")
        killed.release()
        writing.result()
    assert "study.log.lock" in caplog.text
    assert "was killed while it wrote; a lock without a write for 30 s is removed" in caplog.text


def test_a_journal_is_written_under_a_lock_whose_loss_is_no_error(path: Path) -> None:
    """Optuna gives an old lock to the next process, and a release by the former holder raises there."""
    assert isinstance(CrashSafeJournal(path)._lock, JournalLock)
