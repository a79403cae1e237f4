"""Temporary folders of killed processes are removed, those of living ones are not."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memtune.storage.local_files import PREFIX, open_scratch_folder

OPEN_AND_WAIT = """
import sys
from pathlib import Path
from memtune.storage.local_files import open_scratch_folder
with open_scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_text("content")
    print(folder, flush=True)
    sys.stdin.read()
"""


def start_process(parent: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process with a scratch folder below `parent`, and the folder."""
    command = [sys.executable, "-c", OPEN_AND_WAIT, str(parent)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_next_process_removes_the_folder_of_a_killed_one_and_no_other(tmp_path: Path) -> None:
    (killed, stale), (living, used) = start_process(tmp_path), start_process(tmp_path)
    with killed, living:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (stale / "file").exists()
        with open_scratch_folder(tmp_path):
            assert not stale.exists()
            assert (used / "file").read_text() == "content"
        living.communicate("")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_empty_and_private(tmp_path: Path) -> None:
    with open_scratch_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(folder.iterdir()) == []


def test_a_folder_is_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_scratch_folder(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_threads_that_open_and_remove_folders_at_once_keep_their_own(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def use_folders() -> None:
        try:
            for _ in range(100):
                with open_scratch_folder(tmp_path) as folder:
                    (folder / "file").write_text("content")
                    assert (folder / "file").exists()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use_folders) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(tmp_path.iterdir()) == []


def test_a_link_with_the_name_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    os.symlink(target, tmp_path / f"{PREFIX}link")
    with open_scratch_folder(tmp_path):
        assert (target / "file").exists()
