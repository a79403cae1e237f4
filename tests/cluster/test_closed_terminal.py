"""A terminal that is closed ends searches, trainings and MLflow's server like Ctrl-C."""

import os
import pty
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType

import pytest

from memtune.settings import Settings
from memtune.tracking import Recorder
from memtune.trial_state import TrialState
from tests.cluster.drivers import list_session_processes
from tests.cluster.poll import TIMEOUT_SECONDS, poll_until
from tests.cluster.ports import find_free_port

pytestmark = pytest.mark.cluster

TRIAL = """question = "Does it train?"
corpus = "tiny"

[model]
family = "lstm"
width = 6

[training]
tokens = 100_000_000
report_every = 2000
"""


class Terminal:
    """A command that runs in a terminal of its own, 100 columns wide and 30 lines high."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self._text = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "memtune.cli", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def wait_for(self, pattern: str) -> None:
        """Read until the output matches."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not re.search(pattern, self._text.decode(errors="replace")):
            assert time.monotonic() < deadline, self._text.decode(errors="replace")
            if select.select([self._master], [], [], 1.0)[0]:
                self._text += os.read(self._master, 65536)

    def close(self, *, has_shell: bool = False) -> int:
        """Close the terminal; returns the exit code of the command.

        A shell in the terminal passes SIGHUP on to all processes of its job, those of Ray included.
        """
        if has_shell:
            os.killpg(self.process.pid, signal.SIGHUP)
        os.close(self._master)
        return self.process.wait(TIMEOUT_SECONDS)


def list_run_states(settings: Settings) -> list[str]:
    """The states of all runs in MLflow's store."""
    with closing(sqlite3.connect(settings.home / "mlflow.db")) as database:
        return [state for (state,) in database.execute("SELECT status FROM runs")]


def test_a_training_ends_interrupted_and_resumes(settings: Settings, tmp_path: Path) -> None:
    trial = tmp_path / "trial.toml"
    trial.write_text(TRIAL)
    with Terminal("train", str(trial)) as terminal:
        terminal.wait_for(r"epoch \d")
        assert terminal.close() == 1
    assert list_run_states(settings) == ["KILLED"]


def test_a_search_leaves_open_trials_and_no_running_run_or_process(
    settings: Settings, study_file: Path
) -> None:
    long = study_file.read_text().replace("tokens = 900", "tokens = 100_000_000")
    study_file.write_text(long.replace("report_every = 300", "report_every = 20_000"))
    with Terminal("search", str(study_file), "--trials", "1") as terminal:
        terminal.wait_for(r"running.* \d+,\d{3}")  # a trial has reported
        session = terminal.process.pid
        assert terminal.close(has_shell=True) == 1
    states = list_run_states(settings)
    assert len(states) > 1
    assert set(states) == {"KILLED"}
    poll_until(lambda: not list(list_session_processes(session)), "the end of all processes of the search")


@pytest.fixture
def recorded(settings: Settings) -> Settings:
    """A home with one recorded trial."""
    with Recorder(settings.tracking_uri, "tiny") as recorder:
        recorder.start_trial("a", "lstm #0", {})
        recorder.finish_trial("a", TrialState.COMPLETE)
    return settings


def test_the_server_of_the_pages_ends(recorded: Settings) -> None:
    port = find_free_port()
    with Terminal("ui", "--port", str(port)) as terminal:
        terminal.wait_for("stop it with Ctrl-C")
        assert terminal.close() == 0
    with socket.create_server(("127.0.0.1", port)):  # nobody holds the port any more
        assert not (recorded.home / "ui-address.txt").exists()
