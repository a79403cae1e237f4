"""Studies are submitted to a real Ray head, followed, stopped and resumed."""

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
from typer.testing import CliRunner, Result

from memtune.cli import command_line as cli
from memtune.errors import ClusterError
from memtune.ray_backend.jobs import job_server
from memtune.ray_backend.jobs.job_server import JobServer
from memtune.ray_backend.jobs.job_submission import prepare_resumption
from memtune.settings import Settings
from memtune.trial_state import TrialState
from tests.cluster.drivers import Driver, read_outcomes
from tests.cluster.ray_head import RayHead

pytestmark = [
    pytest.mark.cluster,
    # Ray's client passes ssl=None to aiohttp, which deprecates it.
    pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning"),
]

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 240
"""Seconds for one command on a busy machine."""
SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    started = RayHead("--num-cpus=1", "--num-gpus=1")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def client(head: RayHead, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> RayHead:
    """The head; this process and its children authenticate as its client."""
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(head.token))
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", head.address)
    monkeypatch.setenv("MEMTUNE_STORE", settings.corpus_store)
    return head


def memtune(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memtune.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def invoke(*arguments: str) -> Result:
    """`memtune ...` in this process, which has loaded Ray already."""
    return CliRunner().invoke(cli.app, list(arguments))


def parse_job_id(text: str) -> str:
    """The id that `memtune submit` printed."""
    return next(line for line in text.splitlines() if line.startswith("submitted ")).split()[1]


def test_a_submitted_study_prints_its_log_and_sends_no_secret(
    client: RayHead, study_file: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    one_worker = "[resources]\nmax_concurrent = 1\n"
    study_file.write_text(f'{study_file.read_text()}\n{one_worker}\n[early_stopping]\nkind = "none"\n')
    done = memtune("submit", str(study_file), "--trials", "2")
    assert done.returncode == 0, done.stderr
    assert "new champion models:/tiny@champion" in done.stdout
    assert done.stdout.endswith("to continue layers with an edited file: memtune submit STUDY --resume\n")
    assert "MLFLOW_TRACKING_PASSWORD is not sent; the nodes read ~/.mlflow/credentials" in done.stdout
    assert [outcome.state for outcome in read_outcomes(study_file, settings)] == [TrialState.COMPLETE] * 2
    server = JobServer(client.address)
    job = server.get_job(parse_job_id(done.stdout))
    assert (job.study, job.status, job.exit_code) == ("layers", "SUCCEEDED", 0)
    texts = [done.stdout, done.stderr, job.model_dump_json(), server.read_log(job.id)]
    token = client.token.read_text()
    assert not any(SECRET in text or token in text for text in texts)
    (listed,) = [row for row in json.loads(invoke("jobs", "--json").stdout) if row["id"] == job.id]
    assert listed["study"] == "layers"


def test_a_detached_job_survives_its_follower_and_is_stopped_and_resumed(
    client: RayHead, study_file: Path, settings: Settings
) -> None:
    study_file.write_text(study_file.read_text().replace("tokens = 900", "tokens = 900_000_000"))
    detached = invoke("submit", str(study_file), "--trials", "1", "--detach")
    job = parse_job_id(detached.stdout)
    assert f"memtune jobs logs {job} --follow" in detached.stdout
    server = JobServer(client.address)
    follower = Driver([sys.executable, "-m", "memtune.cli", "jobs", "logs", job, "--follow"])
    try:
        follower.wait_for_line("tokens")
        follower.process.send_signal(signal.SIGINT)
        code, _, errors = follower.wait_for_exit()
    finally:
        follower.kill_session()
    assert code == 1
    assert f"{job} continues" in errors
    assert "Traceback" not in errors
    assert server.get_job(job).status == "RUNNING"

    assert "is stopping" in invoke("jobs", "stop", job).stdout
    ended = server.follow_log(job, lambda piece: None)
    assert ended.status == "STOPPED"
    assert "stopped with 1 trial open; to resume" in server.read_log(job)
    (before,) = read_outcomes(study_file, settings)
    assert before.state is TrialState.RUNNING

    text = study_file.read_text()
    study_file.unlink()
    resumed = invoke("jobs", "resume", job, "--time-budget", "1s")
    assert resumed.exit_code == 0, resumed.output
    assert "no trial starts: budget.time is reached" in resumed.stdout
    study_file.write_text(text)
    (after,) = read_outcomes(study_file, settings)
    assert (after.identity, after.state) == (before.identity, before.state)


@pytest.mark.long
def test_a_worker_without_its_assigned_gpu_ends_the_job_with_a_message(
    client: RayHead, study_file: Path
) -> None:
    """The head declares a GPU that the machine does not have."""
    done = memtune("submit", str(study_file), "--trials", "1", "--gpus-per-trial", "0.5")
    assert done.returncode == 1
    assert "this trial needs a GPU and its worker sees none" in " ".join(done.stdout.split())


def test_ray_job_submit_runs_the_search_script(client: RayHead, study_file: Path) -> None:
    environment = {"PYTHONPATH": "platform"} | {
        name: value for name, value in os.environ.items() if name.startswith("MEMTUNE_")
    }
    options = ["--working-dir", str(ROOT), "--runtime-env-json", json.dumps({"env_vars": environment})]
    search = ["python", "jobs/search.py", str(study_file), "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", *options, "--", *search],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was started" in done.stdout


def test_following_a_failed_job_ends_with_its_exit_code(client: RayHead, tmp_path: Path) -> None:
    server = JobServer(client.address)
    server.submit("fails", "echo once; exit 3", tmp_path, {}, {})
    followed = invoke("jobs", "logs", "fails", "--follow")
    assert followed.exit_code == 3
    assert followed.stdout.count("once\n") == 1
    assert "exit code 3" in followed.stderr
    with pytest.raises(ClusterError, match="was not submitted by memtune"):
        prepare_resumption(server.get_job("fails"))


def test_following_a_log_continues_after_each_interruption(
    client: RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout counts from the last output: the second interruption comes later than it allows."""
    monkeypatch.setattr(job_server, "RECONNECT_TIMEOUT_SECONDS", job_server.POLL_SECONDS / 2)
    with Tunnel(client.address) as tunnel:
        server = JobServer(tunnel.address)
        gates = {name: tmp_path / name for name in ("first", "second")}
        steps = [f"echo {name}; until [ -e {gate} ]; do sleep 0.2; done" for name, gate in gates.items()]
        server.submit("cut", "; ".join([*steps, "echo third"]), tmp_path, {}, {})
        pieces: list[str] = []

        def write(piece: str) -> None:
            pieces.append(piece)
            for name, gate in gates.items():
                if f"{name}\n" in piece:
                    tunnel.cut()
                    gate.touch()

        assert server.follow_log("cut", write).status == "SUCCEEDED"
    lines = "".join(pieces).splitlines()
    assert [lines.count(name) for name in ("first", "second", "third")] == [1, 1, 1]


@pytest.mark.parametrize("token", ["0" * 64, None], ids=["wrong", "none"])
def test_a_client_without_the_right_token_is_refused_with_the_fix(
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


def test_the_error_for_an_unknown_job_names_the_nearest_one(client: RayHead, tmp_path: Path) -> None:
    server = JobServer(client.address)
    server.submit("nearby", "true", tmp_path, {}, {})
    with pytest.raises(ClusterError, match=r'no job "nearbi" .* did you mean "nearby"'):
        server.read_log("nearbi")


class Tunnel:
    """A TCP relay on its own port, like `ray dashboard`; its connections can be closed."""

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
        """Close every open connection."""
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
    """Copy bytes until one end closes."""
    with source, suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
