"""The Ray instance that a search starts on one machine: access, processes and prestarted workers."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.drivers import list_processes

pytestmark = pytest.mark.cluster

RUN = """
import json, os, sys
from memtune.ray_backend.ray_connection import connect_ray, ray

def trial():
    "What a worker has imported before its first task to do."
    return os.getpid(), "memtune.ray_backend.trial_actor" in sys.modules

with connect_ray(None, trials=os.cpu_count()):
    print(json.dumps(ray.get([ray.remote(trial).remote() for _ in range(os.cpu_count())])), flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Instance:
    """A running instance."""

    titles: dict[int, str]
    """The command lines of its processes, including the driver."""
    ready: dict[int, bool]
    """The workers that ran a task, and whether they had imported the modules of a trial."""


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    ) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        ready = dict(json.loads(driver.stdout.readline()))
        titles = {pid: title for pid, session, title in list_processes() if session == driver.pid}
        yield Instance(titles, ready)
        driver.stdin.close()


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
    workers = [
        pid for pid, title in instance.titles.items() if title.startswith("ray::") and "Agent" not in title
    ]
    assert len(workers) == os.cpu_count()
    assert instance.ready == dict.fromkeys(instance.ready, True)
    assert {*instance.ready} <= {*workers}
