"""A private Ray head with its job server, on free ports, with its own folder and token."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.cluster.ports import find_free_ports

START_TIMEOUT_SECONDS = 120
PORT_OPTIONS = (
    "port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "ray-client-server-port",
    "metrics-export-port",
)


class RayHead:
    """`ray start --head` in a new session; `stop` ends only the processes that it started."""

    def __init__(self, *options: str, environment: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mt-"))  # a short path, because Ray's sockets are below it
        self.token = self.folder / "token"
        self.token.write_text("0123456789abcdef" * 4)
        ports = find_free_ports(len(PORT_OPTIONS))
        self.gcs_address = f"127.0.0.1:{ports[0]}"
        self.address = f"http://127.0.0.1:{ports[1]}"
        self._options = [f"--{name}={port}" for name, port in zip(PORT_OPTIONS, ports, strict=True)]
        self._options += ["--dashboard-host=127.0.0.1", "--node-ip-address=127.0.0.1", *options]
        self._extra_environment = environment or {}

    def set_autoscaling_config(self, config: dict[str, object]) -> None:
        """Give the head an autoscaling file, before it is started."""
        path = self.folder / "autoscaling.yaml"
        path.write_text(json.dumps(config))
        self._options.append(f"--autoscaling-config={path}")

    def start(self) -> None:
        """Start, and wait until the job server answers."""
        fixed = [
            "--head",
            "--block",
            f"--temp-dir={self.folder}",
            "--min-worker-port=0",
            "--max-worker-port=0",
        ]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *fixed, *self._options]
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                command, env=self._build_environment(), stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._is_job_server_up():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.5)

    def _build_environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MEMTUNE_"))
        }
        kept.pop("PYTHONPATH", None)
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        path = {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "RAY_USAGE_STATS_ENABLED": "0"}
        return {**kept, **token, **path, **self._extra_environment}

    def _is_job_server_up(self) -> bool:
        request = urllib.request.Request(
            f"{self.address}/api/jobs/", headers={"Authorization": f"Bearer {self.token.read_text()}"}
        )
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End every process that runs from the head's folder."""
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for process in self.find_processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.folder, ignore_errors=True)

    def find_processes(self) -> list[int]:
        """Processes whose command line names this head's folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                named = str(self.folder).encode() in (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if named:
                found.append(int(entry.name))
        return found
