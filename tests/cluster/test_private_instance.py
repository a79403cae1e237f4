"""What remains of a search's private Ray instance after its driver was killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtune.ray_backend.instance_cleanup import RUN_FOLDER_VARIABLE
from memtune.settings import Settings
from tests.cluster.drivers import (
    Driver,
    find_run_folder,
    list_session_processes,
    open_temporary_folder,
    run_driver,
)
from tests.cluster.poll import poll_until
from tests.cluster.study_setup import lengthen

pytestmark = pytest.mark.cluster

CLEANUP_SECONDS = 5.0
"""Far more than a cleanup takes (0.1 to 0.3 s), and far less than Ray alone: agents stay for a minute."""


@pytest.fixture
def temporary_folder() -> Iterator[Path]:
    """The temporary folder of the driver alone."""
    with open_temporary_folder() as folder:
        yield folder


@pytest.fixture
def driver(study_file: Path, settings: Settings, temporary_folder: Path) -> Iterator[Driver]:
    """A search whose only trial is longer than any test."""
    lengthen(study_file)
    environment = {"TMPDIR": str(temporary_folder), "RAY_TMPDIR": ""}
    with run_driver(study_file, "--trials", "1", environment=environment) as driver:
        yield driver


def test_a_killed_driver_leaves_no_worker(driver: Driver, temporary_folder: Path) -> None:
    driver.wait_for_line("running")
    assert_cleanup(driver, find_run_folder(temporary_folder))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("gcs_server", marks=pytest.mark.long),
        "raylet/raylet",
        pytest.param("runtime_env/agent", marks=pytest.mark.long),
        pytest.param("default_worker", marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_while_ray_starts_leaves_no_process(
    program: str, driver: Driver, temporary_folder: Path
) -> None:
    """Ray's agents survive for a minute when the driver dies before they watch their parent."""
    poll_until(lambda: has_instance_process(program, temporary_folder), f"the start of {program}")
    assert_cleanup(driver, find_run_folder(temporary_folder))


def has_instance_process(program: str, temporary_folder: Path) -> bool:
    folders = [path for path in temporary_folder.glob("memtune_*/*") if path.is_dir()]
    return any(program in title for folder in folders for title in list_instance_processes(folder).values())


def list_instance_processes(folder: Path) -> dict[int, str]:
    """The command lines of the processes of an instance, by process."""
    found = {}
    variable = f"{RUN_FOLDER_VARIABLE}={folder}"
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (entry / "environ").read_text(errors="replace").split("\0"):
                found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace")
        except OSError:
            continue
    return found


def assert_cleanup(driver: Driver, folder: Path) -> None:
    """Kill the driver, and check that its processes and its folder disappear within CLEANUP_SECONDS.

    Processes of its session count too: a title may have replaced the variable of an instance's process.
    """
    assert list_instance_processes(folder), "no process to end"
    driver.kill()
    poll_until(
        lambda: not list_instance_processes(folder) and not list(list_session_processes(driver.process.pid)),
        "the end of an instance",
        CLEANUP_SECONDS,
    )
    poll_until(lambda: not folder.exists(), "the removal of a run folder", CLEANUP_SECONDS)
    assert not list_instance_processes(folder), "the cleanup started a process"
