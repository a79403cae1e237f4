"""A cluster on premises for tests: hosts, a user's copy of the project with the file filled in, and commands.

The copy is what a user has after following docs/cluster.md: `clusters/onprem.yaml` with its addresses, user
and key, and nothing else changed. Its hosts have no internet, so the environment that the file's set-up
commands would make is this machine's own, in its place on each host, and `uv` there only says that all is
installed.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memtune.execution.settings import Settings
from tests.cluster.drivers import Driver, eventually
from tests.cluster.hosts import SHARED, Host, Hosts

__all__ = ["FILE", "TRIAL", "Premises"]

ROOT = Path(__file__).parents[2]
DELIVERED = ("platform", "jobs", "search_spaces", "clusters", "pyproject.toml", ".gitignore")
UV = """#!/bin/sh
# The hosts have no internet: everything that uv would install is there.
test "$1 $2" = "pip install" && grep -q "^ray==" ~/.memtune-node/requirements.txt
"""
PATIENCE = 900
"""Seconds for what waits until hosts have joined, or a study has ended, on a busy machine."""
FILE = "clusters/onprem.yaml"
TRIAL = "ray::ResourceTrainable"
"""How Ray calls a process that holds a trial."""
JOB = f"""working_dir: .
env_vars:
  PYTHONPATH: platform
  MEMTUNE_HOME: {SHARED}/home
  MEMTUNE_STORE: {SHARED}/corpora
  MEMTUNE_STUDIES: {SHARED}/studies
"""


class Premises:
    """A client and its hosts, the first of which is the cluster's head."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        """`folder` becomes the client's home, with the project in it."""
        self.hosts, self.head, self.workers = hosts, hosts.hosts[0], hosts.hosts[1:]
        self.home, self.project = folder, folder / "memtune"
        for name in DELIVERED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.project / name)
        (self.project / "job.yaml").write_text(JOB)
        self._fill_in()
        for host in hosts.hosts:
            furnish(host)
        self.launch = ""
        """What the last launch said; empty when the cluster is down."""

    def _fill_in(self) -> None:
        path = self.project / FILE
        text = path.read_text()
        workers = ", ".join(host.address for host in self.workers)
        for placeholder, value in (
            ("[192.0.2.11, 192.0.2.12]", f"[{workers}]"),
            ("192.0.2.10", self.head.address),
            ("EDIT-user", "root"),
            ("~/.ssh/EDIT-key", str(self.hosts.key)),
        ):
            assert placeholder in text
            text = text.replace(placeholder, value)
        path.write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """The client's: a home of its own, and nothing of memtune or Ray set before."""
        kept = {"LANG", "OMP_NUM_THREADS", "TERM"}
        binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {
            **{name: value for name, value in os.environ.items() if name in kept},
            "HOME": str(self.home),
            "PATH": binaries,
            "PYTHONPATH": str(self.project / "platform"),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.home),
        }

    def run(self, *command: str, code: int = 0, **variables: str) -> str:
        """What a command in the project's folder says, on either stream; it must end with `code`."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, f"{' '.join(command)} ended with {done.returncode}: {done.stdout}"
        return done.stdout

    def up(self) -> None:
        """Launch the cluster, unless it is up, and wait for its nodes."""
        if not self.launch:
            self.launch = self.run("memtune", "cluster", "up", FILE, "--yes")

    def down(self) -> None:
        """End the cluster."""
        self.run("memtune", "cluster", "down", FILE, "--yes")
        self.launch = ""

    @contextmanager
    def dashboard(self) -> Iterator[str]:
        """The job server's address here, for the time of the block: what `ray dashboard` does for a user."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        log = self.home / f"dashboard-{port}.log"
        with log.open("wb") as sink:
            forward = subprocess.Popen(
                ["ray", "dashboard", FILE, "--port", str(port)],
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        try:
            eventually(lambda: forward.poll() is not None or _listens(port), "the forwarded port")
            assert forward.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(forward.pid, signal.SIGTERM)
            forward.wait()

    @contextmanager
    def submit(self, address: str, study: str, *options: str) -> Iterator[Driver]:
        """`ray job submit` of a study, as docs/cluster.md says it; its log comes as the job runs."""
        words = ["ray", "job", "submit", "--address", address, "--runtime-env", "job.yaml", "--"]
        command = [*words, "python", "jobs/search.py", study, *options]
        job = Driver(command, self.environment | {"RAY_AUTH_MODE": "token"}, self.project)
        try:
            yield job
        finally:
            job.end()

    @property
    def settings(self) -> Settings:
        """Where the jobs keep their records, seen from here."""
        shared = self.hosts.shared
        return Settings(
            home=shared / "home",
            store=str(shared / "corpora"),
            studies=str(shared / "studies"),
            proposals=f"journal:///{shared / 'home' / 'proposals.log'}",
            tracking=f"sqlite:///{shared / 'home' / 'mlflow.db'}",
        )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def furnish(host: Host) -> None:
    """Put in place what the set-up commands find: the environment, and uv."""
    node, programs = host.home / ".memtune-node", host.home / ".local" / "bin"
    for folder in (node, programs):
        folder.mkdir(parents=True)
    (node / "environment").symlink_to(sys.prefix)
    (programs / "uv").write_text(UV)
    (programs / "uv").chmod(0o755)
