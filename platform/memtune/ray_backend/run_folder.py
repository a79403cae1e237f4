"""The folder of one driver's run: Ray's session, its token and Tune's files, readable by its user alone.

Run folders are below `<temporary folder>/memtune_<uid>`, mode 0700. They are short because Ray's unix sockets
are below them: the kernel limits the path of a socket to 107 bytes on Linux and to 103 on macOS, of which
Ray takes 68. A run folder is removed at the end of its run, also when the driver is killed; what remains of a
driver whose cleanup was killed too is removed at the start of the user's next run.
"""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memtune.errors import StorageError, explain_system_error
from memtune.ray_backend import instance_cleanup
from memtune.ray_backend.instance_cleanup import ORDERLY_END, clean_up
from memtune.stop_signals import STOP_SIGNALS, start_processes_without
from memtune.storage.local_files import make_locked_folder

OWNER_ONLY_MODE = 0o700
MAX_PATH_BYTES = 35
"""103 for a socket, less "/ray/session_<26 characters>_<pid>/sockets/plasma_store"."""
CLEANUP_TIMEOUT_SECONDS = 30


@contextmanager
def open_run_folder() -> Iterator[Path]:
    """A new run folder during the block; a separate process removes it afterwards.

    Processes started in the block with `RUN_FOLDER_VARIABLE` set to the folder are ended with it. Raises
    StorageError when the folder cannot be made or belongs to another user.
    """
    folder, lock = make_locked_folder(_make_private_root(), "", clean_up)
    try:
        with _start_cleanup(folder) as cleanup:
            try:
                yield folder
            finally:
                cleanup.communicate(ORDERLY_END, CLEANUP_TIMEOUT_SECONDS)
    finally:
        os.close(lock)


def _start_cleanup(folder: Path) -> "subprocess.Popen[bytes]":
    """Start the cleanup in a new session and without stop signals: it ends after the driver.

    It does not have the driver's outputs, so that a pipe behind them is closed with the driver.
    """
    program = [sys.executable, "-I", "-S", instance_cleanup.__file__, str(folder)]
    none = subprocess.DEVNULL
    with start_processes_without(*STOP_SIGNALS):
        return subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True, cwd="/"
        )


def _make_private_root() -> Path:
    """The folder of run folders, in RAY_TMPDIR or TMPDIR where that is short enough for Ray, else in /tmp."""
    name, folder = f"memtune_{os.geteuid()}", Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    is_short = len(os.fsencode(folder / name / "01234567")) <= MAX_PATH_BYTES
    root = (folder if is_short else Path("/tmp")) / name
    try:
        root.mkdir(OWNER_ONLY_MODE, exist_ok=True)
        status = root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise StorageError(
                f"{root} is not a folder of this user, so others could read Ray's token in it; remove it, or "
                "set TMPDIR to a folder of your own"
            )
        root.chmod(OWNER_ONLY_MODE)
    except OSError as error:
        raise StorageError(
            f"cannot make {root} for Ray's files: {explain_system_error(error)}, or set TMPDIR to a folder "
            "of your own"
        ) from error
    return root
