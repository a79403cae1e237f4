"""A client of Ray's job server; `memtune cluster dashboard` forwards the server's port to this machine."""

import asyncio
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
from memtune.ray_backend.clusters.cluster_file import read_token
from memtune.ray_backend.compatibility import make_job_client, set_environment
from memtune.retry import Backoff, retry
from memtune.settings import bypass_proxy_for_loopback, explain_proxy
from memtune.storage.uris import refuse_credentials
from memtune.values import Value

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
STUDY_KEY = "memtune_study"
"""The key of the study's name in a job's metadata."""
USER_KEY = "memtune_user"
SEARCH_COMMAND = re.compile(r"\bsearch(?:\.py)?\s+(?:\S*/)?([^\s/]+)\.toml\b")
NO_AGENT = "No available agent"
"""Ray's words: its client raises a bare RuntimeError for every answer of the server."""
NO_AGENT_HINT = (
    "; the agent that starts jobs on the head is not up yet, or has ended: try again in a minute, then look "
    "into session_latest/logs/dashboard_agent.log of Ray's folder on the head"
)
AGENT_TIMEOUT_SECONDS = 60.0
"""Seconds that a new head has to start the agent."""
CONNECT_TIMEOUT_SECONDS = 10.0
ANSWER_TIMEOUT_SECONDS = 15.0
"""Seconds in which the server has to answer a question; Ray's client alone waits for ever."""
LOST_HEAD_HINT = (
    "to continue a study: memtune jobs resume JOB when the head is back, or memtune submit STUDY --resume "
    "where its list of jobs is gone"
)
RECONNECT_TIMEOUT_SECONDS = 60.0
"""Seconds without a connection after which `follow_log` fails."""
POLL_SECONDS = 0.5


class Job(Value):
    """A job, as the job server describes it."""

    id: str
    study: str | None
    """The study's name; None for a job that does not run a study."""
    user: str | None = None
    """Who submitted it; None where the client did not say."""
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
    def has_ended(self) -> bool:
        """Whether the job has stopped, succeeded or failed."""
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")

    def duration_seconds(self, now: float) -> float | None:
        """Seconds from the job's start to its end, or to `now` (Unix seconds); None before the start."""
        return None if self.started is None else (self.ended or now) - self.started


def resolve_server_address(address_option: str | None) -> str:
    """The address of the job server: `address_option`, else Ray's variables, else port 8265 of this machine.

    Raises ConfigurationError for an address with a password, ClusterError for an address that is not http.
    """
    variables = (os.environ.get(name, "") for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"))
    # RAY_ADDRESS may name the GCS of a cluster, such as 10.0.0.1:6379, which is not a job server.
    address = address_option or next((own for own in variables if own.startswith("http")), DEFAULT_ADDRESS)
    refuse_credentials("--address", address)  # first, because the next error repeats the address
    if not _is_http_address(address):
        typed = f"http://{address}"
        written = typed if "://" not in address and _is_http_address(typed) else DEFAULT_ADDRESS
        raise ClusterError(f"{address} is not the address of a job server; write it as {written}")
    return address.rstrip("/")


def _is_http_address(address: str) -> bool:
    try:
        return urlsplit(address).scheme in ("http", "https") and bool(urlsplit(address).hostname)
    except ValueError:  # such as http://[/b]
        return False


class JobServer:
    """A connection to one job server. Its methods raise ClusterError when the server fails."""

    def __init__(self, address: str) -> None:
        """Connect with the token of this machine's user. Raises ClusterError when nothing answers."""
        self.address, parts = address, urlsplit(address)
        bypass_proxy_for_loopback()
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), timeout=CONNECT_TIMEOUT_SECONDS).close()
        except OSError as error:
            raise ClusterError(
                f"no job server answers at {address}: {error}; check that the cluster is up and that "
                "`memtune cluster dashboard CLUSTER.yaml` runs in another terminal"
            ) from None
        with self._translate_errors():
            self._client = _create_client(address)

    def submit(
        self,
        job_id: str,
        entrypoint: str,
        folder: Path,
        environment: Mapping[str, str],
        metadata: Mapping[str, str],
    ) -> None:
        """Upload `folder` and run `entrypoint` in it on the head, once that has an agent for jobs."""

        def start() -> None:
            self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=job_id,
                runtime_env={"working_dir": str(folder), "env_vars": dict(environment)},
                metadata=dict(metadata),
            )

        with self._translate_errors():
            pauses = Backoff(POLL_SECONDS, 5.0)
            retry(start, lambda error: NO_AGENT in str(error), pauses.next_pause, AGENT_TIMEOUT_SECONDS)

    def list_jobs(self) -> list[Job]:
        """All jobs that were submitted, newest first."""
        with self._translate_errors():
            details = [detail for detail in self._client.list_jobs() if detail.submission_id]
        return sorted(map(_parse_job, details), key=lambda job: job.started or math.inf, reverse=True)

    def get_job(self, job_id: str) -> Job:
        """The job with this id. Raises ClusterError with the nearest id when it does not exist."""
        jobs = {job.id: job for job in self.list_jobs()}
        if job_id not in jobs:
            lost = "" if jobs else f"; a new head has lost its list; {LOST_HEAD_HINT}"
            raise ClusterError(f'no job "{job_id}" at {self.address}; {did_you_mean(job_id, jobs)}{lost}')
        return jobs[job_id]

    def read_log(self, job_id: str) -> str:
        """The output of the job so far."""
        self.get_job(job_id)
        with self._translate_errors():
            return str(self._client.get_job_logs(job_id))

    def stop(self, job_id: str) -> bool:
        """Send the job its stop signal. Returns False when the job has already ended."""
        if self.get_job(job_id).has_ended:
            return False
        with self._translate_errors():
            return bool(self._client.stop_job(job_id))

    def follow_log(self, job_id: str, write: Callable[[str], object]) -> Job:
        """Write the output of a job, from its first line until the job ends; returns the ended job.

        An interrupted connection is opened again, and no output is written twice. Raises ClusterError when
        the server does not answer for RECONNECT_TIMEOUT_SECONDS.
        """
        # Not `memtune.retry.retry`: its timeout counts from the first attempt, which may stream for days.
        written = 0
        disconnected_at: float | None = None
        while True:
            seen, interruption = asyncio.run(self._stream_log(job_id, write, written))
            written = max(seen, written)
            if interruption is None:
                job = self.get_job(job_id)
                if job.has_ended:
                    # Ray ends the stream with the job and may leave out its last lines.
                    write(self.read_log(job_id)[written:])
                    return job
                disconnected_at = None
            elif disconnected_at is None or seen:
                disconnected_at = time.monotonic()
            elif time.monotonic() - disconnected_at > RECONNECT_TIMEOUT_SECONDS:
                raise ClusterError(
                    f"the log of {job_id} was interrupted ({interruption}), and {self.address} does not "
                    f"answer; the job may still run; to follow it: memtune jobs logs {job_id} --follow; "
                    f"the head may have died: {LOST_HEAD_HINT}"
                )
            time.sleep(POLL_SECONDS)

    async def _stream_log(
        self, job_id: str, write: Callable[[str], object], written: int
    ) -> tuple[int, Exception | None]:
        """Write a log without its first `written` characters.

        Returns the number of characters that came, and the error with which the connection broke, or None.
        """
        # Imported here: aiohttp takes about 0.4 s, and only followed logs need it.
        from aiohttp import ClientError

        seen = 0
        try:
            async for piece in self._client.tail_job_logs(job_id):
                new = piece[max(0, written - seen) :]
                seen += len(piece)
                if new:
                    write(new)
        except (ClientError, RuntimeError, OSError) as error:
            return seen, error
        return seen, None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise ClusterError for the errors of Ray's client."""
        from ray.exceptions import AuthenticationError
        from requests import RequestException

        try:
            yield
        except AuthenticationError:
            raise ClusterError(
                f"{self.address} refuses this machine's token; copy the head's ~/.ray/auth_token to the same "
                "place here (mode 0600), or name its file in RAY_AUTH_TOKEN_PATH"
            ) from None
        except RequestException as error:  # which names its parts in several layers
            raise ClusterError(
                f"the job server at {self.address} did not answer; the head may have died: {LOST_HEAD_HINT}"
                f"{explain_proxy(self.address)}"
            ) from error
        except (RuntimeError, ConnectionError, OSError) as error:
            hint = NO_AGENT_HINT if NO_AGENT in str(error) else explain_proxy(self.address)
            raise ClusterError(f"the job server at {self.address} failed: {error}{hint}") from error


def _create_client(address: str) -> "JobSubmissionClient":
    """Ray's client for `address`; without the variable set here, the environment would take precedence."""
    token = read_token(os.environ)
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    with set_environment({"RAY_API_SERVER_ADDRESS": address}):
        return make_job_client(address, headers, ANSWER_TIMEOUT_SECONDS)


def _parse_job(details: Any) -> Job:
    """A Job from Ray's JobDetails."""
    metadata = details.metadata or {}
    search_command = SEARCH_COMMAND.search(details.entrypoint)
    return Job(
        id=details.submission_id,
        study=metadata.get(STUDY_KEY) or (search_command[1] if search_command else None),
        user=metadata.get(USER_KEY),
        status=str(details.status.value),
        started=details.start_time and details.start_time / 1000,
        ended=details.end_time and details.end_time / 1000,
        entrypoint=details.entrypoint,
        message=details.message or "",
        exit_code=details.driver_exit_code,
        metadata=metadata,
        environment=(details.runtime_env or {}).get("env_vars", {}),
    )
