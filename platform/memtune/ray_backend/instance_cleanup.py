"""Ends what a driver leaves behind: the processes of its private Ray instance, and its run folder.

Run as a program, it waits until its driver closes the pipe at its standard input, which the kernel does even
for a driver ended by SIGKILL, and then cleans up. It imports the standard library only and is run by path, so
that it starts within milliseconds and takes few megabytes.

Ray alone takes seconds: its agents and workers poll for the death of their parents, agents that are still
starting do so for a minute, and workers may store another checkpoint meanwhile.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ORDERLY_END = b"end"
"""What a driver writes into the pipe when it has ended its instance itself."""

RUN_FOLDER_VARIABLE = "MEMTUNE_RUN_FOLDER"
"""In the environment of every process of an instance: the instance's folder."""
MAX_SECONDS = 20.0
QUIET_SCANS = 3
"""A process that is between fork and exec is missed by one scan, so several in a row must find nothing."""
SCAN_INTERVAL_SECONDS = 0.02
WATCH_SECONDS = 5.0
WATCH_INTERVAL_SECONDS = 0.2


def clean_up(folder: Path) -> None:
    """Kill the instance's processes until none is found, for 20 seconds at most, and remove its folder."""
    deadline, quiet_scans = time.monotonic() + MAX_SECONDS, 0
    while quiet_scans < QUIET_SCANS and time.monotonic() < deadline:
        processes = list(_find_processes(folder))
        quiet_scans = 0 if processes else quiet_scans + 1
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(SCAN_INTERVAL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def watch_for_late_processes(folder: Path) -> None:
    """For 5 seconds, end processes of the instance that no scan has found, and remove their files.

    On a busy machine, a process that the killed driver had forked takes longer than all scans until it
    has the instance's variable, and starts further ones.
    """
    deadline = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < deadline:
        if folder.exists() or any(_find_processes(folder)):
            clean_up(folder)
        time.sleep(WATCH_INTERVAL_SECONDS)


def _find_processes(folder: Path) -> Iterator[int]:
    """Processes that were started with the instance's variable; a dead one has an empty environment.

    Those to which Ray has given a title may have lost it, because a title is written over the environment.
    They have a log of the instance open, as the driver has, which has no such title.
    """
    variable = f"{RUN_FOLDER_VARIABLE}={folder}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or ended meanwhile
            has_variable = variable in (entry / "environ").read_bytes().split(b"\0")
            if int(entry.name) != os.getpid() and (has_variable or _has_title(entry, folder)):
                yield int(entry.name)


def _has_title(entry: Path, folder: Path) -> bool:
    """Whether Ray has given the process a title, and it has a file of the instance's session open."""
    return (entry / "cmdline").read_bytes().startswith(b"ray::") and any(
        os.readlink(file).startswith(f"{folder}/ray/") for file in (entry / "fd").iterdir()
    )


def main() -> None:
    """Wait for the driver's end, then clean up the folder that the first argument names."""
    folder = Path(sys.argv[1])
    was_killed = sys.stdin.buffer.read() != ORDERLY_END
    clean_up(folder)
    if was_killed:
        watch_for_late_processes(folder)


if __name__ == "__main__":
    main()
