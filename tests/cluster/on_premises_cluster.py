"""A cluster on premises for tests: hosts, and a client with a copy of the project.

The copy is what a user of docs/cluster/on_premises.md has: `clusters/onprem.yaml` with the placeholders
replaced. The hosts have no internet. So this machine's environment takes the place of the one that the setup
commands would create, and a stand-in for `uv` checks only that it would install the requirements.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from memtune.settings import Settings
from tests.cluster.drivers import Driver
from tests.cluster.hosts import SHARED_MOUNT, Host, Hosts, find_missing_requirements
from tests.cluster.poll import poll_until
from tests.cluster.ports import find_free_port

__all__ = ["CLUSTER_FILE", "TRIAL_PROCESS_TITLE", "OnPremisesCluster", "boot_cluster"]

ROOT = Path(__file__).parents[2]
COPIED_PATHS = ("platform", "jobs", "search_spaces", "clusters", "pyproject.toml", ".gitignore")
UV_SCRIPT = """#!/bin/sh
# The hosts have no internet: the packages that uv would install are already present.
test "$1 $2" = "pip install" && grep -q "^ray==" ~/.memtune-node/requirements.txt
"""
TIMEOUT_SECONDS = 900
"""Seconds until hosts have joined or a study has ended, on a busy machine."""
CLUSTER_FILE = "clusters/onprem.yaml"
TRIAL_PROCESS_TITLE = "ray::ResourceTrainable"
"""The process title of a trial's worker."""
JOB_YAML = f"""working_dir: .
env_vars:
  PYTHONPATH: platform
  MEMTUNE_HOME: {SHARED_MOUNT}/home
  MEMTUNE_STORE: {SHARED_MOUNT}/corpora
  MEMTUNE_STUDIES: {SHARED_MOUNT}/studies
"""


class OnPremisesCluster:
    """A client and its hosts; the first host is the head."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        """`folder` becomes the client's home and contains the project."""
        self.hosts, self.head, self.workers = hosts, hosts.hosts[0], hosts.hosts[1:]
        self.home, self.project = folder, folder / "memtune"
        for name in COPIED_PATHS:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.project / name)
        (self.project / "job.yaml").write_text(JOB_YAML)
        self._fill_placeholders()
        for host in hosts.hosts:
            install_host_programs(host)
        self.launch_output = ""
        """The output of the last launch; empty while the cluster is down."""

    def _fill_placeholders(self) -> None:
        path = self.project / CLUSTER_FILE
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
        """The client's environment: its own home, and no variable of memtune or Ray."""
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

    def run(self, *command: str, expected_exit_code: int = 0, variables: Mapping[str, str] = {}) -> str:
        """The output of a command in the project's folder, which has to end with this exit code."""
        done = subprocess.run(
            command,
            cwd=self.project,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == expected_exit_code, (
            f"{' '.join(command)} ended with {done.returncode}: {done.stdout}"
        )
        return done.stdout

    def up(self) -> None:
        """Launch the cluster, unless it is up, and wait for its nodes."""
        if not self.launch_output:
            self.launch_output = self.run("memtune", "cluster", "up", CLUSTER_FILE, "--yes")

    def down(self) -> None:
        """End the cluster."""
        self.run("memtune", "cluster", "down", CLUSTER_FILE, "--yes")
        self.launch_output = ""

    @contextmanager
    def forward_dashboard(self) -> Iterator[str]:
        """Run `memtune cluster dashboard` during the block; yields the local address of the job server."""
        port = find_free_port()
        log = self.home / f"dashboard-{port}.log"
        with log.open("wb") as sink:
            forward = subprocess.Popen(
                ["memtune", "cluster", "dashboard", CLUSTER_FILE, "--port", str(port)],
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        try:
            poll_until(lambda: forward.poll() is not None or _is_listening(port), "the forwarded port")
            assert forward.poll() is None, log.read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(forward.pid, signal.SIGTERM)
            forward.wait()

    @contextmanager
    def submit(self, address: str, study: str, *options: str) -> Iterator[Driver]:
        """`ray job submit` of a study, as in docs/cluster.md; the driver reads the job's log."""
        words = ["ray", "job", "submit", "--address", address, "--runtime-env", "job.yaml", "--"]
        command = [*words, "python", "jobs/search.py", study, *options]
        job = Driver(command, self.environment | {"RAY_AUTH_MODE": "token"}, self.project)
        try:
            yield job
        finally:
            job.kill_session()

    @property
    def settings(self) -> Settings:
        """The jobs' locations, as this machine sees them."""
        shared = self.hosts.shared
        return Settings(
            home=shared / "home",
            corpus_store=str(shared / "corpora"),
            studies_folder=str(shared / "studies"),
            study_database=f"journal:///{shared / 'home' / 'proposals.log'}",
            tracking_uri=f"sqlite:///{shared / 'home' / 'mlflow.db'}",
        )


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def install_host_programs(host: Host) -> None:
    """Install what the setup commands would: the environment and uv."""
    node, programs = host.home / ".memtune-node", host.home / ".local" / "bin"
    for folder in (node, programs):
        folder.mkdir(parents=True)
    (node / "environment").symlink_to(sys.prefix)
    (programs / "uv").write_text(UV_SCRIPT)
    (programs / "uv").chmod(0o755)


@contextmanager
def boot_cluster(folder: Path) -> Iterator[OnPremisesCluster]:
    """Boot two hosts with their disks in `folder`, and describe them as a cluster; nothing runs on them.

    Skips the test where this machine cannot run hosts.
    """
    if missing := find_missing_requirements():
        pytest.skip(f"hosts on this machine need {', '.join(missing)}")
    for name in ("hosts", "client"):
        (folder / name).mkdir()
    with Hosts(folder / "hosts", 2) as hosts:
        yield OnPremisesCluster(hosts, folder / "client")
