"""Processes of Ray that are killed while a study runs: it resumes by itself, or stops and can be resumed."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from memtune.search import StoredTrial
from memtune.settings import Settings
from memtune.trial_state import TrialState
from tests.cluster.drivers import (
    Driver,
    list_processes,
    list_session_processes,
    open_temporary_folder,
    read_outcomes,
    run_driver,
    start_ray_instance,
)
from tests.cluster.poll import poll_until
from tests.cluster.study_setup import describe_outcomes, make_home, run_undisturbed
from tests.conftest import write_study

pytestmark = pytest.mark.cluster

NOTICE_SECONDS = 30.0
CLUSTER_NOTICE_SECONDS = 50.0
"""Less than the 60 s after which Ray ends a driver without a GCS; an idle machine needs 27 s."""
CLEANUP_SECONDS = 5.0
LENGTHS = "checkpoint_every = '0.5s'\nmax_concurrent = 1\n"


def write_long_study(folder: Path, tokens: int = 150_000) -> Path:
    """Two trials with three reports each, of about a second between two."""
    path = write_study(folder)
    text = path.read_text().replace("900", str(tokens)).replace("300", str(tokens // 3))
    terms = f'[resources]\n{LENGTHS}\n[early_stopping]\nkind = "none"\n'
    path.write_text(f"{text.replace('trials = 4', 'trials = 2')}\n{terms}")
    return path


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, own_locations: Path, empty_store: Path
) -> list[StoredTrial]:
    """The trials of the study without a kill."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return run_undisturbed(write_long_study(folder), make_home(folder / "home", empty_store))


@pytest.fixture
def environment(own_locations: Path) -> Iterator[dict[str, str]]:
    """A temporary folder of its own, and the cache of the module."""
    with open_temporary_folder() as folder:
        yield {"TMPDIR": str(folder), "RAY_TMPDIR": "", "MEMTUNE_CACHE": str(own_locations)}


def kill_process(session: int, title: str) -> None:
    """Kill the process of a session with these words in its command line.

    Until a child of the process has started its own program, the child has the same command line.
    """

    def find_alone() -> list[int]:
        found = [pid for pid, leader, words in list_processes() if leader == session and title in words]
        return found if len(found) == 1 else []

    os.kill(poll_until(find_alone, f"one process {title}")[0], signal.SIGKILL)


def send_signal(process: int, number: signal.Signals) -> None:
    """Send a signal to a process unless it has ended: a worker ends with its raylet."""
    with suppress(ProcessLookupError):
        os.kill(process, number)


def wait_for_no_process(driver: Driver) -> None:
    poll_until(
        lambda: not list(list_session_processes(driver.process.pid)),
        "the end of an instance",
        CLEANUP_SECONDS,
    )


@pytest.mark.parametrize(
    "titles",
    [
        ("raylet/raylet", "gcs_server", "ray::RuntimeEnvAgent"),
        pytest.param(("ray::DashboardAgent",), marks=pytest.mark.long),
    ],
)
def test_a_search_resumes_by_itself_after_each_kill_of_a_process_of_its_instances(
    titles: tuple[str, ...],
    tmp_path: Path,
    settings: Settings,
    environment: dict[str, str],
    undisturbed: list[StoredTrial],
) -> None:
    """Each instance is killed after a report that the one before has not sent."""
    study = write_long_study(tmp_path)
    reports = [(trial.number, tokens) for trial in undisturbed for tokens in list(trial.curve)[:-1]]
    with run_driver(study, environment=environment) as driver:
        for kills, (title, (number, tokens)) in enumerate(zip(titles, reports, strict=False), 1):
            driver.wait_for_line(f"trial +{number}  running .* {tokens:,} tokens")
            kill_process(driver.process.pid, title)
            killed = time.monotonic()
            line = driver.wait_for_line("; the study resumes on a new instance", kills)
            assert time.monotonic() - killed < NOTICE_SECONDS
            found = re.search(r"has died; its logs are in (\S+);", line)
            assert found, line
            assert (Path(found[1]) / "raylet.out").exists()
            assert Path(found[1]).parent.stat().st_mode & 0o777 == 0o700
        driver.wait_for_success()
        wait_for_no_process(driver)
    assert describe_outcomes(read_outcomes(study, settings)) == describe_outcomes(undisturbed)
    root = Path(environment["TMPDIR"]) / f"memtune_{os.geteuid()}"
    assert root.exists()
    assert not list(root.iterdir())


def test_a_search_whose_instances_die_without_progress_stops_and_can_be_resumed(
    tmp_path: Path, settings: Settings, environment: dict[str, str]
) -> None:
    study = write_long_study(tmp_path, 900_000_000)
    with run_driver(study, environment=environment) as driver:
        for times in (1, 2):
            driver.wait_for_line(" running ", times)
            kill_process(driver.process.pid, "raylet/raylet")
        code, out, err = driver.wait_for_exit(NOTICE_SECONDS)
        wait_for_no_process(driver)
    assert code == 1
    assert "it also died before, and no trial has reported since" in out
    assert "to resume: memtune search" in " ".join((out + err).split())
    (outcome,) = read_outcomes(study, settings)
    assert outcome.state is TrialState.RUNNING


@pytest.mark.parametrize("title", ["raylet/raylet", "gcs_server"])
def test_a_search_on_a_cluster_stops_and_says_which_process_died(
    title: str, tmp_path: Path, settings: Settings
) -> None:
    study = write_long_study(tmp_path, 900_000_000)
    with (
        start_ray_instance(cores=1) as instance,
        ExitStack() as stopped,
        run_driver(study, environment=instance.environment) as driver,
    ):
        driver.wait_for_line(" running ")
        kill_process(instance.session, title)
        # They would train, and call the dead process again and again, until the driver has ended.
        stopped.callback(os.killpg, instance.session, signal.SIGKILL)
        for process in (*instance.find_trial_processes(), instance.session):
            stopped.callback(send_signal, process, signal.SIGKILL)  # workers have groups of their own
            send_signal(process, signal.SIGSTOP)
        code, out, err = driver.wait_for_exit(CLUSTER_NOTICE_SECONDS)
    assert code == 1
    assert f"Ray's process {Path(title).name}" in " ".join((out + err).split())
    assert "Traceback" not in out + err
    (outcome,) = read_outcomes(study, settings)
    assert outcome.state is TrialState.RUNNING
