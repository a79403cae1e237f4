"""What other users can read of a search's private Ray instance, and what remains after its end."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from memtune.ray_backend.instance_cleanup import RUN_FOLDER_VARIABLE
from memtune.settings import Settings
from tests.cluster.drivers import Driver, list_session_processes, read_files, run_driver
from tests.cluster.poll import poll_until

pytestmark = pytest.mark.cluster

OTHER_USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
TIMEOUT_STATUS = 137
CLEANUP_SECONDS = 5.0
"""Far more than a cleanup takes (0.1 to 0.3 s), and far less than Ray alone: agents stay for a minute."""
SECRET_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "RAY_AUTH_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "PGPASSWORD",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "GOOGLE_API_KEY",
    "AZURE_STORAGE_KEY",
    "WANDB_API_KEY",
    "GITHUB_TOKEN",
)
CONNECT = """
import sys
from ray._raylet import GcsClient
try:
    print("answered", len(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10)))
except BaseException as error:
    print("refused", type(error).__name__, error)
"""

WAIT_CONNECTED = """
import signal
from memtune.ray_backend.ray_connection import connect_ray
from memtune.stop_signals import interrupt_on_stop_signals
try:
    with interrupt_on_stop_signals(), connect_ray("local"):
        print("connected", flush=True)
        signal.pause()
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def temporary_folder() -> Iterator[Path]:
    """A folder with a short path, for Ray's sockets, that every user may enter, like /tmp."""
    with TemporaryDirectory(prefix="mt-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture
def environment(settings: Settings, temporary_folder: Path) -> dict[str, str]:
    """Variables of a home and a temporary folder that only the study uses."""
    (temporary_folder / "home").mkdir(mode=0o755)
    return {"TMPDIR": str(temporary_folder), "HOME": str(temporary_folder / "home"), "RAY_TMPDIR": ""}


def lengthen(study_file: Path) -> None:
    """Make the trials of a study longer than any test."""
    study_file.write_text(study_file.read_text().replace("900", "900_000_000").replace("300", "900_000_000"))


def find_run_folder(temporary_folder: Path) -> Path:
    (folder,) = [path for path in temporary_folder.glob("memtune-*/*") if path.is_dir()]
    return folder


def find_gcs_address(driver: Driver) -> str:
    """The address at which a driver's Ray instance takes connections."""
    titles = [Path(f"/proc/{pid}/cmdline").read_text() for pid in list_session_processes(driver.process.pid)]
    (address,) = {found[1] for title in titles if (found := re.search(r"--gcs-address=([\d.:]+)", title))}
    return address


def run_as_other_user(
    command: list[str], environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command as another user; it is killed after 30 s, because Ray may retry forever."""
    plain = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(environment or {})}
    limited = ["timeout", "--signal=KILL", "30", *OTHER_USER, *command]
    return subprocess.run(limited, capture_output=True, text=True, env=plain, cwd="/")


def test_an_instance_is_closed_to_other_users_and_its_killed_driver_leaves_no_worker(
    study_file: Path, environment: dict[str, str], temporary_folder: Path
) -> None:
    lengthen(study_file)
    with run_driver(study_file, environment=environment) as driver:
        driver.wait_for_line("running")
        folder = find_run_folder(temporary_folder)
        if os.geteuid() == 0 and shutil.which("setpriv"):
            assert_closed_to_others(folder, find_gcs_address(driver))
        assert_cleanup(driver, folder)


def assert_closed_to_others(folder: Path, address: str) -> None:
    """Another user can neither read an instance's folder nor connect to it."""
    assert (folder / "token").read_text()
    for command in (["cat", str(folder / "token")], ["ls", str(folder)], ["ls", str(folder / "ray")]):
        denied = run_as_other_user(command)
        assert "Permission denied" in denied.stderr, command
    connect = [sys.executable, "-c", CONNECT, address]
    for token in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}):
        tried = run_as_other_user(connect, token)
        assert tried.returncode == TIMEOUT_STATUS or "refused" in tried.stdout, tried.stderr
        assert "answered" not in tried.stdout
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": (folder / "token").read_text()}
    tried = subprocess.run(connect, capture_output=True, text=True, env=os.environ | own)
    assert "answered 1" in tried.stdout, "refused with the right token"


def test_no_secret_of_the_environment_reaches_a_file(
    study_file: Path, settings: Settings, environment: dict[str, str], temporary_folder: Path
) -> None:
    """Ray's logs are searched while they exist, during a stop of the driver; other files after its end."""
    canaries = {name: f"canary{secrets.token_hex(12)}" for name in SECRET_VARIABLES}
    lengthen(study_file)
    with run_driver(study_file, environment=environment | canaries) as driver:
        driver.wait_for_line("running")
        driver.process.send_signal(signal.SIGSTOP)
        logs = find_run_folder(temporary_folder) / "ray" / "session_latest" / "logs"
        assert (logs / "runtime_env_agent.log").exists()
        assert find_canaries(temporary_folder, canaries) == {}
        driver.process.send_signal(signal.SIGCONT)
        driver.process.send_signal(signal.SIGINT)
        _, out, err = driver.wait_for_exit()
    assert not [name for name, canary in canaries.items() if canary in out + err]
    for folder in (temporary_folder, settings.home, study_file.parent):
        assert find_canaries(folder, canaries) == {}


def find_canaries(folder: Path, canaries: dict[str, str]) -> dict[str, str]:
    """The secrets that files below a folder contain, with one of the files."""
    found: dict[str, str] = {}
    for path, content in read_files(folder).items():
        found |= {name: str(path) for name, canary in canaries.items() if canary.encode() in content}
    return found


def test_a_search_leaves_no_temporary_file(
    study_file: Path, environment: dict[str, str], temporary_folder: Path
) -> None:
    with run_driver(study_file, environment=environment) as driver:
        driver.wait_for_success()
    left = [path.name for folder in temporary_folder.glob("memtune-*") for path in folder.rglob("*")]
    assert left == ["lock"]
    assert {path.name for path in temporary_folder.iterdir()} <= {"home", f"memtune-{os.geteuid()}"}
    assert not (temporary_folder / "home" / ".ray" / "auth_token").exists()


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
    program: str, study_file: Path, environment: dict[str, str], temporary_folder: Path
) -> None:
    """Ray's agents survive for a minute when the driver dies before they watch their parent."""
    with run_driver(study_file, environment=environment) as driver:
        poll_until(lambda: has_instance_process(program, temporary_folder), f"the start of {program}")
        assert_cleanup(driver, find_run_folder(temporary_folder))


def has_instance_process(program: str, temporary_folder: Path) -> bool:
    folders = [path for path in temporary_folder.glob("memtune-*/*") if path.is_dir()]
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
    killed = time.monotonic()
    poll_until(
        lambda: not list_instance_processes(folder) and not list(list_session_processes(driver.process.pid)),
        "the end of an instance",
        CLEANUP_SECONDS,
    )
    print(f"no process {time.monotonic() - killed:.2f} s after the kill")
    poll_until(lambda: not folder.exists(), "the removal of a run folder", CLEANUP_SECONDS)
    assert not list_instance_processes(folder), "the cleanup started a process"


def test_a_driver_that_is_ended_before_its_first_trial_prints_no_native_stack(temporary_folder: Path) -> None:
    environment = os.environ | {"RAY_TMPDIR": str(temporary_folder)}
    driver = Driver([sys.executable, "-c", WAIT_CONNECTED], environment)
    driver.wait_for_line("connected")
    driver.process.terminate()
    assert driver.wait_for_exit() == (0, "connected\ninterrupted\n", "")
