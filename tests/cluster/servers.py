"""The services of a cluster for tests: real processes that tests can stop and start again.

They listen on loopback, or on an address of a private network.

PostgreSQL comes from Debian's package, and the object store is moto's server. MLflow's server uses both; its
options come from clusters/services, its passwords from the script there.
"""

import configparser
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any

import psycopg
from psycopg import sql
from pyarrow import fs

from tests.cluster.poll import TIMEOUT_SECONDS, is_stopped, poll_until
from tests.cluster.ports import find_free_port

__all__ = [
    "MlflowServer",
    "ObjectStore",
    "Postgres",
    "Secrets",
    "find_postgres_programs",
    "find_unprivileged_user",
    "make_secrets",
]

SERVICES_FOLDER = Path(__file__).parents[2] / "clusters" / "services"
MLFLOW_UNIT_PATH = SERVICES_FOLDER / "memtune-mlflow.service"
PROGRAMS_FOLDER = Path(sys.executable).parent
LOOPBACK = "127.0.0.1"


def find_postgres_programs() -> Path | None:
    """The folder of initdb and postgres, of the newest version that is installed; None without any."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    initdb = debian[-1] if debian else shutil.which("initdb")
    return Path(initdb).parent if initdb else None


def find_unprivileged_user() -> str | None:
    """The user that runs PostgreSQL, which refuses root: Debian's user, else nobody; None for this user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Secrets:
    """The passwords that clusters/services/make_secrets.sh made in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def database_password(self) -> str:
        return (self.folder / "postgres_password").read_text()

    @property
    def administrator_password(self) -> str:
        return self.server_environment["MLFLOW_AUTH_ADMIN_PASSWORD"]

    @property
    def server_environment(self) -> dict[str, str]:
        """The environment variables of the server's process."""
        return dict(line.split("=", 1) for line in (self.folder / "mlflow.env").read_text().splitlines())

    def install(self, home: Path, postgres_port: int) -> None:
        """Write the user's two password files to the paths of docs/cluster/services.md."""
        passwords = (self.folder / "pgpass").read_text().replace(":5432:", f":{postgres_port}:")
        credentials = (self.folder / "mlflow_credentials").read_text()
        for path, text in ((".pgpass", passwords), (".mlflow/credentials", credentials)):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).touch(mode=0o600)
            (home / path).write_text(text)


def make_secrets(folder: Path) -> Secrets:
    """Create passwords with the script of clusters/services."""
    subprocess.run([str(SERVICES_FOLDER / "make_secrets.sh"), str(folder)], check=True)
    return Secrets(folder)


class Postgres:
    """PostgreSQL with the databases of clusters/services, on its own port and socket."""

    def __init__(self, folder: Path, programs: Path, password: str, host: str = LOOPBACK) -> None:
        self.port, self.host = find_free_port(), host
        self.folder, self.user, self._programs = folder, find_unprivileged_user(), programs
        self._password = password
        self.process: subprocess.Popen[bytes] | None = None
        self._initialise()

    @property
    def url(self) -> str:
        """The URL of Optuna's storage; the password is in ~/.pgpass."""
        return f"postgresql://memtune@{self.host}:{self.port}/optuna"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data")]
        command += ["-h", self.host, "-p", str(self.port), "-k", str(self.folder), "-c", "fsync=off"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **self._get_process_owner()
            )
        poll_until(self._is_accepting_connections, "PostgreSQL")

    def stop(self, stop_signal: signal.Signals = signal.SIGINT) -> None:
        """Stop the server. SIGINT closes connections; SIGQUIT exits at once, and the next start recovers."""
        assert self.process is not None
        self.process.send_signal(stop_signal)
        self.process.wait(TIMEOUT_SECONDS)

    @contextmanager
    def suspend(self, max_seconds: float = TIMEOUT_SECONDS) -> Iterator[None]:
        """SIGSTOP all processes until the block ends, at most `max_seconds`; connections stay open."""
        assert self.process is not None
        postmaster = self.process.pid
        pids = [postmaster]  # a stopped process starts no further children
        os.kill(postmaster, signal.SIGSTOP)
        poll_until(lambda: is_stopped(postmaster), "the stop of PostgreSQL")
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
        pids += [int(pid) for pid in children.read_text().split()]

        def resume() -> None:
            for pid in reversed(pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        timer = Timer(max_seconds, resume)
        timer.start()
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            timer.cancel()
            resume()

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @contextmanager
    def connect_as_administrator(self) -> Iterator[psycopg.Connection]:
        """A connection of the superuser, over the socket."""
        with psycopg.connect(
            host=str(self.folder),
            port=self.port,
            user="postgres",
            password=self._password,
            dbname="postgres",
            autocommit=True,
        ) as connection:
            yield connection

    def _initialise(self) -> None:
        password = self.folder / "superuser"
        password.write_text(self._password)
        if self.user:
            for path in (self.folder, password):
                shutil.chown(path, self.user)
        command = [str(self._programs / "initdb"), "-D", str(self.folder / "data"), "--username=postgres"]
        command += [
            "--auth=scram-sha-256",
            f"--pwfile={password}",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **self._get_process_owner())
        password.unlink()
        if self.host != LOOPBACK:
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet scram-sha-256\n")

    def make_databases(self) -> None:
        """Create the role and the databases of compose.yaml and docs/cluster/services.md."""
        with self.connect_as_administrator() as connection:
            role = "CREATE ROLE memtune LOGIN PASSWORD {}"
            connection.execute(sql.SQL(role).format(sql.Literal(self._password)))
            connection.execute("CREATE DATABASE mlflow OWNER memtune")
            for statement in (SERVICES_FOLDER / "databases.sql").read_text().split(";"):
                if statement.strip():
                    connection.execute(statement.encode())

    def _get_process_owner(self) -> dict[str, Any]:
        return {"user": self.user, "extra_groups": []} if self.user else {}

    def _is_accepting_connections(self) -> bool:
        assert self.is_up, (self.folder / "server.log").read_text()
        try:
            with self.connect_as_administrator():
                return True
        except psycopg.OperationalError:
            return False


class ObjectStore:
    """The S3 server of moto."""

    credentials: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret-of-s3"}

    def __init__(self, log: Path, host: str = LOOPBACK) -> None:
        self.address = f"http://{host}:{find_free_port()}"
        self._host = host
        self._log = log

    def build_client_environment(self, address: str | None = None) -> dict[str, str]:
        """The variables of S3 clients, with the server's address or that of a relay."""
        return {**self.credentials, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": address or self.address}

    def make_bucket(self, name: str) -> None:
        """Create a bucket."""
        key, secret = self.credentials.values()
        files = fs.S3FileSystem(
            access_key=key,
            secret_key=secret,
            region="us-east-1",
            endpoint_override=self.address.removeprefix("http://"),
            scheme="http",
            allow_bucket_creation=True,
        )
        files.create_dir(name)

    @contextmanager
    def serve(self) -> Iterator["ObjectStore"]:
        """Run the server during the block."""
        port = self.address.rpartition(":")[2]
        command = [str(PROGRAMS_FOLDER / "moto_server"), "-H", self._host, "-p", port]
        with (
            self._log.open("wb") as sink,
            subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True) as server,
        ):
            try:
                poll_until(
                    lambda: is_responding(f"{self.address}/moto-api/", server, self._log),
                    "the S3 server",
                )
                yield self
            finally:
                os.killpg(server.pid, signal.SIGTERM)


class MlflowServer:
    """MLflow's server with the command of memtune-mlflow.service, on another port, with one worker."""

    def __init__(
        self,
        folder: Path,
        secrets: Secrets,
        postgres: Postgres,
        artifacts: str,
        environment: Mapping[str, str],
        host: str = LOOPBACK,
    ) -> None:
        self.folder = folder
        self.port = find_free_port()
        self.uri = f"http://{host}:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        text = MLFLOW_UNIT_PATH.read_text()
        variables = [
            pair for line in re.findall("^Environment=(.*)$", text, re.M) for pair in shlex.split(line)
        ]
        unit_environment = dict(pair.split("=", 1) for pair in variables)
        unit_environment["MLFLOW_ARTIFACTS_DESTINATION"] = artifacts
        unit_environment["MLFLOW_AUTH_CONFIG_PATH"] = str(SERVICES_FOLDER / "mlflow_auth.ini")
        self._environment = {
            **environment,
            **unit_environment,
            **secrets.server_environment,
            "PGPORT": str(postgres.port),
        }
        self._environment["PGHOST"] = postgres.host
        (command,) = re.findall("^ExecStart=(.*)$", text, re.M)
        program, *options = shlex.split(command)
        options[options.index("--port") + 1] = str(self.port)
        options[options.index("--host") + 1] = host
        self.command = [str(PROGRAMS_FOLDER / Path(program).name), *options, "--workers", "1"]

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self.folder / "mlflow.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        process = self.process
        assert process is not None
        log = self.folder / "mlflow.log"
        poll_until(lambda: is_responding(f"{self.uri}/health", process, log), "MLflow's server")

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kill the process group of the server and its workers with SIGKILL."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def is_responding(address: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Whether an address answers. Raises AssertionError with the log when the process has ended."""
    assert process.poll() is None, log.read_text(errors="replace")
    try:
        urllib.request.urlopen(address, timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def make_private_folder(owner: str | None) -> Iterator[Path]:
    """A folder that another user can reach, unlike the folders of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="memtune-test-"))
    try:
        if owner:
            shutil.chown(folder, owner)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
