"""Drivers of studies in separate processes, their output, and the processes that they start."""

import json
import os
import re
import secrets
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from memtune.search import Proposals, StoredTrial
from memtune.settings import Settings
from memtune.studies.definition.resolved_study import ResolvedStudy
from memtune.studies.definition.study_loader import load_study, resolve_study
from tests.cluster.poll import TIMEOUT_SECONDS

__all__ = [
    "Driver",
    "RayInstance",
    "find_run_folder",
    "find_trial_processes",
    "list_session_processes",
    "load_resolved_study",
    "open_proposals",
    "open_temporary_folder",
    "read_files",
    "read_outcomes",
    "run_command",
    "run_driver",
    "start_ray_instance",
    "start_ray_nodes",
]


class Driver:
    """A command that drives a study, in a new session; threads collect its lines."""

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

    def wait_for_line(self, pattern: str, times: int = 1) -> str:
        """The line of match number `times`; AssertionError when the driver ends before it."""
        return self._wait_for_match(self.lines, pattern, times)

    def wait_for_error_line(self, pattern: str, times: int = 1) -> str:
        """As `wait_for_line`, for the standard error."""
        return self._wait_for_match(self.errors, pattern, times)

    def _wait_for_match(self, lines: list[str], pattern: str, times: int) -> str:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            if ended:
                self._drain()
            found = [line for line in list(lines) if re.search(pattern, line)]
            if len(found) >= times:
                return found[times - 1]
            assert not ended, f"no line like {pattern!r} {times} times in {self.lines}: {self.errors}"
            time.sleep(0.02)
        raise AssertionError(f"no line like {pattern!r} within {TIMEOUT_SECONDS} s in {lines}")

    def wait_for_exit(self, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        self.process.wait(timeout_seconds)
        self._drain()
        return self.process.returncode, "".join(self.lines), "".join(self.errors)

    def wait_for_success(self, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
        """Wait for exit code 0; returns the output."""
        code, out, err = self.wait_for_exit(timeout_seconds)
        assert code == 0, out + err
        return out

    def kill(self) -> None:
        """Send SIGKILL to the driver only."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def kill_session(self) -> None:
        """Kill the driver and all processes that it started, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._drain()

    def _drain(self) -> None:
        for reader in self._readers:
            reader.join(TIMEOUT_SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@contextmanager
def open_temporary_folder() -> Iterator[Path]:
    """A folder with a path short enough for Ray's sockets."""
    with TemporaryDirectory(prefix="mt-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def find_run_folder(temporary_folder: Path) -> Path:
    """The run folder of the only driver with this temporary folder."""
    (folder,) = [path for path in temporary_folder.glob("memtune_*/*") if path.is_dir()]
    return folder


@contextmanager
def run_driver(study: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Driver]:
    """Run a driver during the block."""
    command = [sys.executable, "-m", "memtune.cli", "search", str(study), *options]
    driver = Driver(command, os.environ | (environment or {}))
    try:
        yield driver
    finally:
        driver.kill_session()


def run_command(arguments: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
    """Run a command of memtune to its end: exit code, output and errors."""
    driver = Driver([sys.executable, "-m", "memtune.cli", *arguments], os.environ | environment)
    return driver.wait_for_exit()


def find_trial_processes(session: int) -> list[int]:
    """The ids of the processes of a session that run a trial; the session is that of the starter of Ray."""
    names = ("ResourceTrainable", "TrialActor")
    return [
        pid
        for pid, leader, title in list_processes()
        if leader == session and title.startswith("ray::") and any(name in title for name in names)
    ]


def list_session_processes(session: int) -> Iterator[int]:
    """The living processes of a session."""
    return (pid for pid, leader, title in list_processes() if leader == session and title)


def list_processes() -> Iterator[tuple[int, int, str]]:
    """Id, session and command line of every process."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                title = (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
                session = (folder / "stat").read_text().rpartition(")")[2].split()[3]
                yield int(folder.name), int(session), title


def read_files(folder: Path) -> dict[Path, bytes]:
    """The files below a folder in which processes run; those that vanish meanwhile are left out."""
    contents = {}
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):
                if stat.S_ISREG(path.lstat().st_mode):
                    contents[path] = path.read_bytes()
    return contents


RAY_SCRIPT = """
import os, sys, ray
ray.init("local", num_cpus=int(sys.argv[2]), include_dashboard=False, log_to_driver=False,
         logging_level="ERROR", _temp_dir=sys.argv[1])
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""
# Ray's test cluster writes its address into a folder that must exist, where a bare ray.init() would find it.
NODES_SCRIPT = """
import json, os, sys
os.environ["RAY_TMPDIR"] = sys.argv[1]
os.makedirs(sys.argv[1] + "/ray")
from ray.cluster_utils import Cluster
cluster = Cluster()
for variables in json.loads(sys.argv[2]):
    head = {} if cluster.list_all_nodes() else {"temp_dir": sys.argv[1], "include_dashboard": False}
    cluster.add_node(num_cpus=1, env_vars=variables, **head)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@dataclass(frozen=True)
class RayInstance:
    """A Ray instance that several drivers share."""

    environment: dict[str, str]
    """The variables with which a driver connects to it."""
    session: int

    def find_trial_processes(self) -> list[int]:
        """The ids of its processes that run a trial."""
        return find_trial_processes(self.session)


@contextmanager
def start_ray_instance(cores: int) -> Iterator[RayInstance]:
    """Run a Ray instance with this number of cores during the block."""
    with _run_ray(RAY_SCRIPT, str(cores)) as instance:
        yield instance


@contextmanager
def start_ray_nodes(*variables: dict[str, str]) -> Iterator[RayInstance]:
    """Run a Ray cluster on this machine during the block: a node of one core for each environment."""
    with _run_ray(NODES_SCRIPT, json.dumps(variables)) as instance:
        yield instance


@contextmanager
def _run_ray(script: str, argument: str) -> Iterator[RayInstance]:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    with (
        open_temporary_folder() as folder,
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder), argument],
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


def load_resolved_study(study: Path, settings: Settings) -> ResolvedStudy:
    """The study as a driver resolves it."""
    return resolve_study(study, load_study(study), settings)


def open_proposals(study: Path, settings: Settings) -> Proposals:
    """The proposals of a study that has no driver now."""
    return load_resolved_study(study, settings).open_proposals()


def read_outcomes(study: Path, settings: Settings) -> list[StoredTrial]:
    """Every trial of a study that has no driver now, from its storage."""
    return open_proposals(study, settings).list_outcomes()
