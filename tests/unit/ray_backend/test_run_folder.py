"""Run folders: their modes, and their removal with their processes."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from memtune.errors import StorageError
from memtune.ray_backend.instance_cleanup import RUN_FOLDER_VARIABLE
from memtune.ray_backend.run_folder import MAX_PATH_BYTES, open_run_folder
from memtune.stop_signals import STOP_SIGNALS
from tests.cluster.poll import poll_until
from tests.presence import require

HOLD = """
import os, subprocess, sys
from memtune.ray_backend import run_folder
run_folder.MAX_PATH_BYTES = 4096
with run_folder.open_run_folder() as folder:
    child = subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"], sys.argv[1]: str(folder)})
    print(folder, child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where run folders are: in /tmp, every search would remove stale ones. The path is too long for Ray."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr("memtune.ray_backend.run_folder.MAX_PATH_BYTES", 4096)
    return tmp_path


def start_driver() -> tuple["subprocess.Popen[str]", Path, int]:
    """A process that holds a run folder, the folder, and a process that belongs to it."""
    program = [sys.executable, "-c", HOLD, RUN_FOLDER_VARIABLE]
    driver = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    folder, child = driver.stdout.readline().split()
    return driver, Path(folder), int(child)


def find_cleanup(folder: Path) -> int:
    """The process that cleans up after a driver.

    It is awaited: while a process starts a program, its command line is empty for a moment, which is after
    the pipe is closed that tells its parent of the start.
    """
    return poll_until(lambda: next(list_cleanups(folder), 0), "the cleanup of a driver")


def list_cleanups(folder: Path) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # of a process that has ended meanwhile
            if entry.read_bytes().split(b"\0")[-2:-1] == [str(folder).encode()]:
                yield int(entry.parent.name)


def test_only_its_user_enters_a_run_folder(temporary_folder: Path) -> None:
    with open_run_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.parent.stat().st_mode & 0o777 == 0o700
        assert folder.parent.parent == temporary_folder


def test_a_root_that_others_can_enter_becomes_private(temporary_folder: Path) -> None:
    root = temporary_folder / f"memtune_{os.geteuid()}"
    root.mkdir()
    root.chmod(0o777)
    with open_run_folder() as folder:
        assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_root_that_is_a_link_is_refused(temporary_folder: Path) -> None:
    """Another user may have made the link."""
    (temporary_folder / "elsewhere").mkdir()
    (temporary_folder / f"memtune_{os.geteuid()}").symlink_to(temporary_folder / "elsewhere")
    with pytest.raises(StorageError, match="is not a folder of this user"), open_run_folder():
        pass


def test_a_run_folder_is_removed_at_the_end() -> None:
    with open_run_folder() as folder:
        (folder / "file").touch()
    assert not folder.exists()


def test_a_path_too_long_for_a_socket_is_not_used(
    temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtune.ray_backend.run_folder.MAX_PATH_BYTES", MAX_PATH_BYTES)
    monkeypatch.setenv("RAY_TMPDIR", str(temporary_folder / ("long" * 10)))
    with open_run_folder() as folder:
        socket = folder / "ray" / "session_2026-11-22_04-10-04_123456_4194304" / "sockets" / "plasma_store"
        assert len(str(socket)) <= 103, "the limit of macOS, which is below that of Linux"


def test_a_killed_driver_leaves_neither_a_process_nor_a_folder() -> None:
    driver, folder, child = start_driver()
    cleanup = find_cleanup(folder)
    with driver:
        driver.kill()
    wait_for_end(cleanup)
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()
    assert not folder.exists()


def test_the_output_of_a_killed_driver_ends_before_its_cleanup() -> None:
    driver, folder, _ = start_driver()
    cleanup = find_cleanup(folder)
    with driver:
        driver.kill()
        assert require(driver.stdout).read() == ""
    assert find_cleanup(folder) == cleanup


def test_the_cleanup_outlives_the_stop_signals_that_a_job_sends_to_all_descendants() -> None:
    driver, folder, _ = start_driver()
    cleanup = find_cleanup(folder)
    with driver:
        for number in STOP_SIGNALS:
            os.kill(cleanup, number)
        assert find_cleanup(folder) == cleanup
        driver.kill()
    wait_for_end(cleanup)
    assert not folder.exists()


def test_a_process_whose_title_has_replaced_its_environment_is_ended() -> None:
    driver, folder, _ = start_driver()
    (folder / "ray").mkdir()
    with (folder / "ray" / "agent.log").open("w") as log:
        agent = subprocess.Popen(["ray::Agent", "1000"], executable=shutil.which("sleep"), env={}, stdout=log)
    with driver:
        driver.kill()
    assert agent.wait(60) == -signal.SIGKILL


def test_a_process_that_a_killed_driver_had_forked_and_that_starts_late_is_ended(tmp_path: Path) -> None:
    """Until a forked process has its new environment, no scan can tell whose it is."""
    os.mkfifo(tmp_path / "start")
    driver, folder, _ = start_driver()
    late = subprocess.Popen(
        ["sh", "-c", f"read line < {tmp_path}/start; exec env {RUN_FOLDER_VARIABLE}={folder} sleep 1000"]
    )
    with driver:
        driver.kill()
    poll_until(lambda: not folder.exists(), "the removal of the run folder")
    (tmp_path / "start").write_text("start\n")
    assert late.wait(60) == -signal.SIGKILL


def wait_for_end(process: int) -> None:
    """Wait for the end of a process that is not a child of this one."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    import select

    try:
        assert select.select([descriptor], [], [], 60)[0], "the process did not end within 60 s"
    finally:
        os.close(descriptor)


def test_the_next_run_removes_the_folder_of_a_driver_whose_cleanup_was_killed() -> None:
    driver, folder, child = start_driver()
    os.kill(find_cleanup(folder), 9)
    with driver:
        driver.kill()
    assert folder.exists()
    with open_run_folder() as next_folder:
        assert next_folder.parent == folder.parent
        assert not folder.exists()
        wait_for_end(child)


def test_the_folder_of_a_running_driver_stays() -> None:
    driver, folder, child = start_driver()
    with driver:
        with open_run_folder():
            assert folder.exists()
            assert Path(f"/proc/{child}").exists()
        assert driver.stdin is not None
        driver.stdin.close()
    assert not folder.exists()
