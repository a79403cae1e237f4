"""A cluster's services as tests start them: real processes that may be stopped and come back.

They listen on loopback, or on the address of a private network that a test made.

PostgreSQL comes from Debian's package, the object store is moto's server, and MLflow's is started by what
clusters/services says, over the other two, with passwords that its script made.
"""

import configparser
import os
import pwd
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import psycopg
from psycopg import sql
from pyarrow import fs

__all__ = [
    "MlflowServer",
    "ObjectStore",
    "Postgres",
    "Secrets",
    "free_port",
    "free_user",
    "make_secrets",
    "postgres_programs",
    "until",
]

SERVICES = Path(__file__).parents[2] / "clusters" / "services"
UNIT = SERVICES / "memtune-mlflow.service"
PROGRAMS = Path(sys.executable).parent
LOOPBACK = "127.0.0.1"
PATIENCE = 120
"""Seconds that a server may take to answer on a busy machine."""


def free_port() -> int:
    """A port of loopback at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def until(found: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait until it is so; an AssertionError names what did not come about."""
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)


def postgres_programs() -> Path | None:
    """The folder of initdb and postgres, of the newest version that is installed; None without any."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = debian[-1] if debian else shutil.which("initdb")
    return Path(found).parent if found else None


def free_user() -> str | None:
    """Who runs PostgreSQL, which root may not: Debian's user for it, else nobody; None for this very user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Secrets:
    """The passwords that clusters/services/make_secrets.sh made in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def database(self) -> str:
        return (self.folder / "postgres_password").read_text()

    @property
    def administrator(self) -> str:
        return self.server["MLFLOW_AUTH_ADMIN_PASSWORD"]

    @property
    def server(self) -> dict[str, str]:
        """What the server's process is given."""
        return dict(line.split("=", 1) for line in (self.folder / "mlflow.env").read_text().splitlines())

    def install(self, home: Path, postgres_port: int) -> None:
        """Put the user's two files where their programs look for them, as docs/cluster.md says."""
        passwords = (self.folder / "pgpass").read_text().replace(":5432:", f":{postgres_port}:")
        credentials = (self.folder / "mlflow_credentials").read_text()
        for path, text in ((".pgpass", passwords), (".mlflow/credentials", credentials)):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).touch(mode=0o600)
            (home / path).write_text(text)


def make_secrets(folder: Path) -> Secrets:
    """New passwords, as a user makes them."""
    subprocess.run([str(SERVICES / "make_secrets.sh"), str(folder)], check=True)
    return Secrets(folder)


class Postgres:
    """PostgreSQL with the databases of clusters/services, on a port and a socket of its own."""

    def __init__(self, folder: Path, programs: Path, password: str, host: str = LOOPBACK) -> None:
        self.port, self.host = free_port(), host
        self.folder, self.user, self._programs = folder, free_user(), programs
        self._password = password
        self.process: subprocess.Popen[bytes] | None = None
        self._initialise()

    @property
    def url(self) -> str:
        """Where studies' proposals go; the password is in ~/.pgpass."""
        return f"postgresql://memtune@{self.host}:{self.port}/optuna"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data")]
        command += ["-h", self.host, "-p", str(self.port), "-k", str(self.folder), "-c", "fsync=off"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **self._identity()
            )
        until(self._answers, "PostgreSQL answers")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: an orderly stop that cuts connections; SIGQUIT: at once, to be recovered at the start."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(PATIENCE)

    @contextmanager
    def hanging(self, longest: float = PATIENCE) -> Iterator[None]:
        """All its processes stopped for the time of the block or so many seconds; connections stay open."""
        assert self.process is not None
        pids = [self.process.pid]  # which starts no more of them once it is stopped
        os.kill(self.process.pid, signal.SIGSTOP)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids += [int(pid) for pid in children.read_text().split()]

        def go_on() -> None:
            for pid in reversed(pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        end = Timer(longest, go_on)
        end.start()
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            end.cancel()
            go_on()

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @contextmanager
    def administrator(self) -> Iterator[psycopg.Connection]:
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
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **self._identity())
        password.unlink()
        if self.host != LOOPBACK:
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet scram-sha-256\n")

    def make_databases(self) -> None:
        """The role and the databases, as compose.yaml and docs/cluster.md make them."""
        with self.administrator() as connection:
            role = "CREATE ROLE memtune LOGIN PASSWORD {}"
            connection.execute(sql.SQL(role).format(sql.Literal(self._password)))
            connection.execute("CREATE DATABASE mlflow OWNER memtune")
            for statement in (SERVICES / "databases.sql").read_text().split(";"):
                if statement.strip():
                    connection.execute(statement.encode())

    def _identity(self) -> dict[str, object]:
        return {"user": self.user, "extra_groups": []} if self.user else {}

    def _answers(self) -> bool:
        assert self.is_up, (self.folder / "server.log").read_text()
        try:
            with self.administrator():
                return True
        except psycopg.OperationalError:
            return False


class ObjectStore:
    """An S3 server, moto's."""

    keys: Mapping[str, str] = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret-of-s3"}

    def __init__(self, log: Path, host: str = LOOPBACK) -> None:
        self.address = f"http://{host}:{free_port()}"
        self._host = host
        self._log = log

    def environment(self, address: str | None = None) -> dict[str, str]:
        """How clients find it, at its own address or another that leads there."""
        return {**self.keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": address or self.address}

    def make_bucket(self, name: str) -> None:
        """A new bucket."""
        key, secret = self.keys.values()
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
    def running(self) -> Iterator["ObjectStore"]:
        """The server for the time of the block."""
        port = self.address.rpartition(":")[2]
        command = [str(PROGRAMS / "moto_server"), "-H", self._host, "-p", port]
        with (
            self._log.open("wb") as sink,
            subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True) as server,
        ):
            try:
                until(
                    lambda: answers(f"{self.address}/moto-api/", server, self._log), "the S3 server answers"
                )
                yield self
            finally:
                os.killpg(server.pid, signal.SIGTERM)


class MlflowServer:
    """MLflow's server as clusters/services/memtune-mlflow.service starts it, at another port, one worker."""

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
        self.port = free_port()
        self.uri = f"http://{host}:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str  # type: ignore[assignment, method-assign]
        text = UNIT.read_text()
        variables = [
            pair for line in re.findall("^Environment=(.*)$", text, re.M) for pair in shlex.split(line)
        ]
        given = dict(pair.split("=", 1) for pair in variables)
        given["MLFLOW_ARTIFACTS_DESTINATION"] = artifacts
        given["MLFLOW_AUTH_CONFIG_PATH"] = str(SERVICES / "mlflow_auth.ini")
        self._environment = {**environment, **given, **secrets.server, "PGPORT": str(postgres.port)}
        self._environment["PGHOST"] = postgres.host
        (command,) = re.findall("^ExecStart=(.*)$", text, re.M)
        program, *options = shlex.split(command)
        options[options.index("--port") + 1] = str(self.port)
        options[options.index("--host") + 1] = host
        self.command = [str(PROGRAMS / Path(program).name), *options, "--workers", "1"]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "mlflow.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self.wait()

    def wait(self) -> None:
        process = self.process
        assert process is not None
        log = self.folder / "mlflow.log"
        until(lambda: answers(f"{self.uri}/health", process, log), "MLflow's server answers")

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the server and its workers, which share its process group."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def answers(address: str, process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Whether an address answers; an AssertionError with its log when its process has ended."""
    assert process.poll() is None, log.read_text(errors="replace")
    try:
        urllib.request.urlopen(address, timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def private_folder(owner: str | None) -> Iterator[Path]:
    """A folder that another user can reach, unlike the folders of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="memtune-test-"))
    try:
        if owner:
            shutil.chown(folder, owner)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
