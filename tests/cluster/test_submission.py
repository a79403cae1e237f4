"""Studies submitted to a real head of a cluster, followed, stopped and taken up again."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from memtune import cli
from memtune.errors import ClusterError
from memtune.execution.jobs.server import JobServer
from memtune.execution.jobs.submission import resumption
from memtune.execution.settings import Settings
from tests.cluster.drivers import outcomes
from tests.cluster.ray_head import RayHead

pytestmark = [
    pytest.mark.cluster,
    # Ray's client asks aiohttp in a way that aiohttp is about to drop.
    pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning"),
]

ROOT = Path(__file__).parents[2]
PATIENCE = 240
SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    started = RayHead("--num-cpus=2", "--num-gpus=1")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def client(head: RayHead, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> RayHead:
    """This process, and what it starts, as a user of the head."""
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(head.token))
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", head.address)
    monkeypatch.setenv("MEMTUNE_STORE", settings.store)
    return head


def memtune(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtune.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def here(*arguments: str) -> Result:
    """`memtune ...` in this process, which has loaded Ray already."""
    return CliRunner().invoke(cli.app, list(arguments))


def submitted(text: str) -> str:
    """The id that `memtune submit` printed."""
    return next(line for line in text.splitlines() if line.startswith("submitted ")).split()[1]


def test_a_submitted_study_runs_with_its_log_here_and_no_secret_leaves(
    client: RayHead, study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    done = memtune("submit", str(study_file), "--trials", "2")
    assert done.returncode == 0, done.stderr
    assert "new champion models:/tiny@champion" in done.stdout
    assert "MLFLOW_TRACKING_PASSWORD stays here; the nodes read ~/.mlflow/credentials" in done.stdout
    assert [outcome.state for outcome in outcomes(study_file, settings)] == ["complete"] * 2
    server = JobServer(client.address)
    job = server.job(submitted(done.stdout))
    assert (job.study, job.status, job.exit_code) == ("layers", "SUCCEEDED", 0)
    seen = [done.stdout, done.stderr, job.model_dump_json(), server.log(job.id)]
    token = client.token.read_text()
    assert not any(SECRET in text or token in text for text in seen)
    (listed,) = [row for row in json.loads(here("jobs", "--json").stdout) if row["id"] == job.id]
    assert listed["study"] == "layers"


def test_a_detached_job_outlives_its_watcher_stops_in_order_and_is_taken_up_again(
    client: RayHead, study_file: Path, settings: Settings
) -> None:
    study_file.write_text(study_file.read_text().replace("tokens = 900", "tokens = 900_000_000"))
    detached = memtune("submit", str(study_file), "--trials", "2", "--detach")
    job = submitted(detached.stdout)
    assert f"memtune jobs logs {job} --follow" in detached.stdout
    server = JobServer(client.address)
    watcher = subprocess.Popen(
        [sys.executable, "-m", "memtune.cli", "jobs", "logs", job, "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert watcher.stdout is not None
    assert any("tokens" in line for line in watcher.stdout)
    watcher.send_signal(signal.SIGINT)
    _, told = watcher.communicate(timeout=PATIENCE)
    assert watcher.returncode == 1
    assert f"{job} goes on" in told
    assert "Traceback" not in told
    assert server.job(job).status == "RUNNING"

    assert "is asked to end" in here("jobs", "stop", job).stdout
    ended = server.follow(job, lambda piece: None)
    assert ended.status == "STOPPED"
    assert "trials open; go on with" in server.log(job)
    begun = outcomes(study_file, settings)
    assert "running" in {outcome.state for outcome in begun}

    text = study_file.read_text()
    study_file.unlink()
    resumed = here("jobs", "resume", job, "--time-budget", "1s")
    assert resumed.exit_code == 0, resumed.output
    assert "its time budget is spent" in resumed.stdout
    study_file.write_text(text)
    after = outcomes(study_file, settings)
    assert [outcome.identity for outcome in after[: len(begun)]] == [outcome.identity for outcome in begun]
    assert {outcome.reason for outcome in after} == {"the study's time was up"}


def test_a_trial_that_was_promised_a_gpu_and_sees_none_ends_the_job_and_says_so(
    client: RayHead, study_file: Path
) -> None:
    """The head counts a GPU that no machine under test has to have."""
    done = memtune("submit", str(study_file), "--trials", "1", "--gpus-per-trial", "0.5")
    assert done.returncode == 1
    assert "this trial was promised a GPU and its worker sees none" in " ".join(done.stdout.split())


def test_a_study_is_submitted_with_rays_own_command(client: RayHead, study_file: Path) -> None:
    environment = {"PYTHONPATH": "platform"} | {
        name: value for name, value in os.environ.items() if name.startswith("MEMTUNE_")
    }
    given = ["--working-dir", str(ROOT), "--runtime-env-json", json.dumps({"env_vars": environment})]
    search = ["python", "jobs/search.py", str(study_file), "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", *given, "--", *search],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was started" in done.stdout


def test_the_exit_code_of_a_job_is_that_of_following_it(client: RayHead, tmp_path: Path) -> None:
    server = JobServer(client.address)
    server.submit("fails", "echo once; exit 3", tmp_path, {}, {})
    followed = here("jobs", "logs", "fails", "--follow")
    assert followed.exit_code == 3
    assert followed.stdout.count("once\n") == 1
    assert "exit code 3" in followed.stderr
    with pytest.raises(ClusterError, match="was not submitted by memtune"):
        resumption(server.job("fails"))


def test_a_log_that_is_cut_off_goes_on_where_it_was(client: RayHead, tmp_path: Path) -> None:
    with Tunnel(client.address) as tunnel:
        server = JobServer(tunnel.address)
        gate = tmp_path / "gate"
        waiting = f"until [ -e {gate} ]; do sleep 0.2; done"
        server.submit("cut", f"echo before; {waiting}; echo after", tmp_path, {}, {})
        pieces: list[str] = []

        def write(piece: str) -> None:
            pieces.append(piece)
            if "before\n" in piece:
                tunnel.cut()
                gate.touch()

        assert server.follow("cut", write).status == "SUCCEEDED"
    lines = "".join(pieces).splitlines()
    assert (lines.count("before"), lines.count("after")) == (1, 1)


@pytest.mark.parametrize("token", ["0" * 64, None], ids=["wrong", "none"])
def test_without_the_right_token_nothing_is_told_but_the_way_to_it(
    client: RayHead, token: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    if token:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    with pytest.raises(
        ClusterError, match=r"refuses this machine's token; copy the head's ~/\.ray/auth_token"
    ):
        JobServer(client.address)


def test_a_job_that_is_not_there_is_told_with_a_near_name(client: RayHead, tmp_path: Path) -> None:
    server = JobServer(client.address)
    server.submit("nearby", "true", tmp_path, {}, {})
    with pytest.raises(ClusterError, match=r'no job "nearbi" .* did you mean "nearby"'):
        server.log("nearbi")


class Tunnel:
    """A relay on a port of its own, such as `ray dashboard` is, whose connections can be cut."""

    def __init__(self, address: str) -> None:
        self._target = int(address.rpartition(":")[2])
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Tunnel":
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """End every connection there is."""
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._target))
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                self._start(relay, source, sink)

    def _start(self, target: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))
        self._threads[-1].start()


def relay(source: socket.socket, sink: socket.socket) -> None:
    """Pass bytes on until an end closes."""
    with source, suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
