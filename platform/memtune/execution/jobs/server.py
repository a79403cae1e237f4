"""The job server of a cluster, which `ray dashboard` carries to this machine."""

import asyncio
import logging
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from memtune.errors import ClusterError, did_you_mean
from memtune.execution.clusters.token import read_token
from memtune.execution.passwords import refuse_password
from memtune.values import Value

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

__all__ = ["DEFAULT_ADDRESS", "STUDY_KEY", "Job", "JobServer", "server_address"]

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
STUDY_KEY = "memtune_study"
"""The entry of a job's metadata that holds its study's name."""
SEARCHES = re.compile(r"\bsearch(?:\.py)?\s+(?:\S*/)?([^\s/]+)\.toml\b")
ANSWER_SECONDS = 10.0
PATIENCE = 60.0
"""Seconds a log may be cut off before following it is given up."""
PAUSE = 0.5
CHATTY = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers of Ray's that tell each step of an upload."""


class Job(Value):
    """A job as its server knows it."""

    id: str
    study: str | None
    """The study's name, or None for a job that is no search."""
    status: str
    """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED."""
    started: float | None
    """Unix time in seconds."""
    ended: float | None
    entrypoint: str
    message: str
    exit_code: int | None
    metadata: dict[str, str]
    environment: dict[str, str]

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")

    def seconds(self, now: float) -> float | None:
        """How long it ran, or has been running at `now`."""
        return None if self.started is None else (self.ended or now) - self.started


def server_address(given: str | None) -> str:
    """Where the job server is: `given`, else what Ray's own commands would take, else this machine's 8265.

    Raises ConfigurationError for an address with a password and ClusterError for one that is no http address.
    """
    named = (given, os.environ.get("RAY_API_SERVER_ADDRESS"), os.environ.get("RAY_ADDRESS"), DEFAULT_ADDRESS)
    address = next(place for place in named if place and (place is given or place.startswith("http")))
    if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname:
        raise ClusterError(f"{address} is no address of a job server; write it as {DEFAULT_ADDRESS}")
    refuse_password("--address", address)
    return address.rstrip("/")


class JobServer:
    """A connection to one job server. Its methods raise ClusterError where the server fails."""

    def __init__(self, address: str) -> None:
        """Connect with the token of this machine's user. Raises ClusterError when nothing answers."""
        self.address = address
        self._check_port()
        with self._faults():
            self._client = _client(address)

    def _check_port(self) -> None:
        parts = urlsplit(self.address)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            raise ClusterError(
                f"no job server answers at {self.address}: {error}; is the cluster up, and does "
                "`ray dashboard CLUSTER.yaml` run in another terminal?"
            ) from None

    def submit(
        self,
        identity: str,
        entrypoint: str,
        folder: Path,
        environment: Mapping[str, str],
        metadata: Mapping[str, str],
    ) -> None:
        """Upload `folder` and run `entrypoint` in it on the head."""
        with self._faults():
            self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=identity,
                runtime_env={"working_dir": str(folder), "env_vars": dict(environment)},
                metadata=dict(metadata),
            )

    def jobs(self) -> list[Job]:
        """All jobs that were submitted, newest first."""
        with self._faults():
            details = [found for found in self._client.list_jobs() if found.submission_id]
        return sorted(map(_job, details), key=lambda job: job.started or math.inf, reverse=True)

    def job(self, identity: str) -> Job:
        """One job. Raises ClusterError with a near name when there is none."""
        found = {job.id: job for job in self.jobs()}
        if identity not in found:
            raise ClusterError(f'no job "{identity}" at {self.address}; {did_you_mean(identity, found)}')
        return found[identity]

    def log(self, identity: str) -> str:
        """What the job has printed so far."""
        self.job(identity)
        with self._faults():
            return str(self._client.get_job_logs(identity))

    def stop(self, identity: str) -> bool:
        """Ask the job to end in order; False when it had ended before."""
        if self.job(identity).over:
            return False
        with self._faults():
            return bool(self._client.stop_job(identity))

    def follow(self, identity: str, write: Callable[[str], object]) -> Job:
        """Pass on what a job prints, from its first line until it has ended; the job as it ended.

        A connection that is cut is opened again, and nothing is written twice. Raises ClusterError when the
        server stays away for a minute.
        """
        written = 0
        cut: float | None = None
        while True:
            try:
                written = asyncio.run(self._stream(identity, write, written))
                job = self.job(identity)
                if job.over:
                    # Ray ends the stream with the job and may leave out its last lines.
                    write(self.log(identity)[written:])
                    return job
                cut = None
            except _CutOffError as error:
                cut = cut or time.monotonic()
                if time.monotonic() - cut > PATIENCE:
                    raise ClusterError(
                        f"the log of {identity} was cut off ({error}) and {self.address} does not answer any "
                        f"more; the job may go on, follow it with: memtune jobs logs {identity} --follow"
                    ) from None
                written = error.written
            time.sleep(PAUSE)

    async def _stream(self, identity: str, write: Callable[[str], object], known: int) -> int:
        """Write what comes after the first `known` characters of a log; how many there are in the end."""
        from aiohttp import ClientError

        seen = 0
        try:
            async for piece in self._client.tail_job_logs(identity):
                new = piece[max(0, known - seen) :]
                seen += len(piece)
                if new:
                    write(new)
        except (ClientError, RuntimeError, OSError) as error:
            raise _CutOffError(str(error), max(seen, known)) from error
        return max(seen, known)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn what Ray's client raises into a ClusterError."""
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError:
            raise ClusterError(
                f"{self.address} refuses this machine's token; copy the head's ~/.ray/auth_token to the same "
                "place here (mode 0600), or name its file in RAY_AUTH_TOKEN_PATH"
            ) from None
        except (RuntimeError, ConnectionError, OSError) as error:
            raise ClusterError(f"the job server at {self.address} failed: {error}") from error


class _CutOffError(Exception):
    """A log's stream ended before its job."""

    def __init__(self, reason: str, written: int) -> None:
        super().__init__(reason)
        self.written = written


def _client(address: str) -> "JobSubmissionClient":
    """Ray's client for exactly this address: it would prefer what the environment names."""
    from ray.job_submission import JobSubmissionClient

    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
    token = read_token(os.environ)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    before = os.environ.get("RAY_API_SERVER_ADDRESS")
    os.environ["RAY_API_SERVER_ADDRESS"] = address
    try:
        return JobSubmissionClient(address, headers=headers)
    finally:
        del os.environ["RAY_API_SERVER_ADDRESS"]
        if before is not None:
            os.environ["RAY_API_SERVER_ADDRESS"] = before


def _job(details: Any) -> Job:
    """Ray's details of a job as ours."""
    metadata = details.metadata or {}
    searched = SEARCHES.search(details.entrypoint)
    return Job(
        id=details.submission_id,
        study=metadata.get(STUDY_KEY) or (searched[1] if searched else None),
        status=str(details.status.value),
        started=details.start_time and details.start_time / 1000,
        ended=details.end_time and details.end_time / 1000,
        entrypoint=details.entrypoint,
        message=details.message or "",
        exit_code=details.driver_exit_code,
        metadata=metadata,
        environment=(details.runtime_env or {}).get("env_vars", {}),
    )
