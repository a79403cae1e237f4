"""Drivers of studies as processes of their own, what they print, and the processes they start."""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TypeVar

from memtune.execution.settings import Settings
from memtune.execution.study import ReadyStudy, load_study, prepare
from memtune.search import Outcome, Proposals

__all__ = [
    "PATIENCE",
    "Driver",
    "RayInstance",
    "driving",
    "eventually",
    "known_proposals",
    "members",
    "outcomes",
    "prepared",
    "ray_instance",
    "workers_of",
]

PATIENCE = 240
T = TypeVar("T")


class Driver:
    """A command that drives a study, in a session of its own; its lines are read as they come."""

    def __init__(
        self, command: list[str], environment: dict[str, str] | None = None, folder: Path | None = None
    ) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment,
            cwd=folder,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            Thread(target=lines.extend, args=[stream], daemon=True)
            for lines, stream in ((self.lines, self.process.stdout), (self.errors, self.process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, pattern: str, times: int = 1) -> str:
        """The line that is the nth to match; fails when the driver ends without it."""
        return self._wait(self.lines, pattern, times)

    def wait_for_error(self, pattern: str, times: int = 1) -> str:
        """As `wait_for`, a line of its errors."""
        return self._wait(self.errors, pattern, times)

    def _wait(self, lines: list[str], pattern: str, times: int) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            if ended:
                self._drain()
            found = [line for line in list(lines) if re.search(pattern, line)]
            if len(found) >= times:
                return found[times - 1]
            assert not ended, f"no line like {pattern!r} {times} times in {self.lines}: {self.errors}"
            time.sleep(0.02)
        raise AssertionError(f"no line like {pattern!r} within {PATIENCE} s in {lines}")

    def finish(self, seconds: float = PATIENCE) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        self.process.wait(seconds)
        self._drain()
        return self.process.returncode, "".join(self.lines), "".join(self.errors)

    def succeed(self, seconds: float = PATIENCE) -> str:
        """Wait for a good end; the output."""
        code, out, err = self.finish(seconds)
        assert code == 0, out + err
        return out

    def kill(self) -> None:
        """SIGKILL to the driver alone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """End the driver and all it started, if it is still there."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._drain()

    def _drain(self) -> None:
        for reader in self._readers:
            reader.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def driving(study: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Driver]:
    """A driver for the time of the block."""
    command = [sys.executable, "-m", "memtune.cli", "search", str(study), *options]
    driver = Driver(command, os.environ | (environment or {}))
    try:
        yield driver
    finally:
        driver.end()


def eventually(condition: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """What the condition gives once it holds; fails with `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"in vain waited for {what}")


def workers_of(session: int) -> list[int]:
    """The processes of a session (that of whoever started its Ray) that hold a trial, by id."""
    names = ("ResourceTrainable", "TrialActor")
    return [
        pid
        for pid, leader, title in processes()
        if leader == session and title.startswith("ray::") and any(name in title for name in names)
    ]


def members(session: int) -> Iterator[int]:
    """The living processes of a session."""
    return (pid for pid, leader, title in processes() if leader == session and title)


def processes() -> Iterator[tuple[int, int, str]]:
    """Id, session and command line of every process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                title = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
                session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
                yield int(folder.name), int(session), title


RAY = """
import os, sys, ray
ray.init("local", num_cpus=int(sys.argv[2]), include_dashboard=False, log_to_driver=False,
         logging_level="ERROR", _temp_dir=sys.argv[1])
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class RayInstance:
    """A Ray of its own for several drivers."""

    environment: dict[str, str]
    """What lets a driver join it."""
    session: int

    def workers(self) -> list[int]:
        """Its processes that hold a trial, by id."""
        return workers_of(self.session)


@contextmanager
def ray_instance(cores: int) -> Iterator[RayInstance]:
    """A Ray with so many cores for the time of the block."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    with (
        # below /tmp, for the names of sockets are short
        TemporaryDirectory(prefix="mt-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, "-c", RAY, folder, str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | token,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "Ray did not start"
        yield RayInstance(token | {"RAY_ADDRESS": address}, process.pid)
        process.stdin.close()


def prepared(study: Path, settings: Settings) -> ReadyStudy:
    """The study as the driver prepares it."""
    return prepare(study, load_study(study), settings)


def known_proposals(study: Path, settings: Settings) -> Proposals:
    """What the storage has of a study that nobody drives now."""
    return prepared(study, settings).proposals()


def outcomes(study: Path, settings: Settings) -> list[Outcome]:
    """Every trial of a study that nobody drives now, as its storage tells it."""
    return known_proposals(study, settings).outcomes()
