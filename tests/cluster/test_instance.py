"""The Ray instance that a search starts on one machine: access, processes, prestarted workers and its end."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.drivers import Driver, list_processes, open_temporary_folder
from tests.cluster.poll import poll_until

pytestmark = pytest.mark.cluster

RUN = """
import json, os, signal, sys
from memtune.ray_backend.ray_connection import connect_ray, ray
from memtune.stop_signals import interrupt_on_stop_signals

def trial():
    "What a worker has imported before its first task to do."
    return os.getpid(), "memtune.ray_backend.trial_actor" in sys.modules

try:
    with interrupt_on_stop_signals(), connect_ray(None, trials=os.cpu_count()) as folder:
        ready = ray.get([ray.remote(trial).remote() for _ in range(os.cpu_count())])
        print(json.dumps([str(folder), ray.get_runtime_context().gcs_address, ready]), flush=True)
        signal.pause()
except KeyboardInterrupt:
    print("interrupted")
"""
OTHER_USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
TIMEOUT_STATUS = 137
CONNECT = """
import sys
from ray._raylet import GcsClient
try:
    print("answered", len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10)))
except BaseException as error:
    print("refused", type(error).__name__, error)
"""


@dataclass(frozen=True)
class Instance:
    """A running instance."""

    driver: Driver
    folder: Path
    address: str
    titles: dict[int, str]
    """The command lines of its processes, including the driver."""
    ready: dict[int, bool]
    """The workers that ran a task, and whether they had imported the modules of a trial."""


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with open_temporary_folder() as folder:
        folder.chmod(0o777)  # every user may enter, like /tmp
        driver = Driver([sys.executable, "-c", RUN], environment | {"RAY_TMPDIR": str(folder)})
        try:
            name, address, ready = json.loads(driver.wait_for_line("memtune_"))
            titles = poll_until(lambda: read_titles(driver.process.pid), "a worker for each core")
            yield Instance(driver, Path(name), address, titles, dict(ready))
        finally:
            driver.kill_session()


def read_titles(session: int) -> dict[int, str]:
    """The command lines of a session; empty until there is a worker for each core.

    One worker can run the tasks of all cores while the others still start.
    """
    titles = {pid: title for pid, leader, title in list_processes() if leader == session}
    return titles if len(find_workers(titles)) >= (os.cpu_count() or 1) else {}


def find_workers(titles: dict[int, str]) -> list[int]:
    return [pid for pid, title in titles.items() if title.startswith("ray::") and "Agent" not in title]


def test_the_instance_is_reachable_from_this_machine_only(instance: Instance) -> None:
    if not shutil.which("ss"):
        pytest.skip("needs ss: apt install iproute2")
    sockets = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    listening = [line.split()[3] for line in sockets.splitlines() if {*parse_pids(line)} & {*instance.titles}]
    assert len(listening) > len(instance.ready)
    assert {address.rpartition(":")[0] for address in listening} <= {"127.0.0.1", "[::ffff:127.0.0.1]"}


def parse_pids(line: str) -> list[int]:
    """The process ids in a line of `ss`."""
    return [int(pid) for pid in re.findall(r"pid=(\d+)", line)]


def test_no_dashboard_autoscaler_or_log_monitor_runs(instance: Instance) -> None:
    titles = "\n".join(instance.titles.values())
    assert "gcs_server" in titles
    assert not re.search(r"dashboard\.py|monitor\.py", titles)


def test_each_core_has_a_worker_that_has_imported_the_modules_of_a_trial(instance: Instance) -> None:
    workers = find_workers(instance.titles)
    assert len(workers) == os.cpu_count()
    assert instance.ready == dict.fromkeys(instance.ready, True)
    assert {*instance.ready} <= {*workers}


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user"
)
def test_the_instance_is_closed_to_other_users(instance: Instance) -> None:
    folder = instance.folder
    assert (folder / "token").read_text()
    for command in (["cat", str(folder / "token")], ["ls", str(folder)], ["ls", str(folder / "ray")]):
        denied = run_as_other_user(command)
        assert "Permission denied" in denied.stderr, command
    connect = [sys.executable, "-c", CONNECT, instance.address]
    for token in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}):
        tried = run_as_other_user(connect, token)
        assert tried.returncode == TIMEOUT_STATUS or "refused" in tried.stdout, tried.stderr
        assert "answered" not in tried.stdout
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": (folder / "token").read_text()}
    tried = subprocess.run(connect, capture_output=True, text=True, env=os.environ | own)
    assert "answered 1" in tried.stdout, "refused with the right token"


def run_as_other_user(
    command: list[str], environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command as another user; it is killed after 30 s, because Ray may retry forever."""
    plain = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(environment or {})}
    limited = ["timeout", "--signal=KILL", "30", *OTHER_USER, *command]
    return subprocess.run(limited, capture_output=True, text=True, env=plain, cwd="/")


def test_a_driver_that_is_ended_before_its_first_trial_prints_no_native_stack(instance: Instance) -> None:
    """The last test, because it ends the instance."""
    (first,) = instance.driver.lines
    instance.driver.process.terminate()
    assert instance.driver.wait_for_exit() == (0, f"{first}interrupted\n", "")
