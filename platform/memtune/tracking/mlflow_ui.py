"""MLflow's pages over a store in a file, served on loopback for the user who starts them.

`mlflow_ui` writes the address with its token into a file next to the database. A server that was killed
leaves the file behind, and another user's program may listen on its port since. So the address is used only
where this user is the one who listens there, which the kernel tells. Nothing is sent to the port, and the
token is left out of the address.
"""

import os
import re
import secrets
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from memtune.arguments import check_type
from memtune.errors import ArgumentError, TrackingError
from memtune.settings import Settings
from memtune.stop_signals import interrupt_on_stop_signals
from memtune.storage.uris import find_sqlite_path
from memtune.tracking.compatibility import OLD_IMPORT_WARNINGS, build_server_environment
from memtune.tracking.mlflow_connection import check_sqlite_file, is_server

TOKEN_VARIABLE, LISTENING_FD_VARIABLE = "MEMTUNE_UI_TOKEN", "MEMTUNE_UI_LISTENING_FD"
ADDRESS_FILE = "ui-address.txt"
END_SECONDS = 10.0
"""Seconds in which the server closes the connections of browsers."""
ADDRESS_PATTERN = re.compile(r"(?P<url>http://127\.0\.0\.1:(?P<port>\d{1,5}))/\?token=\S+\s*")
MAX_ADDRESS_BYTES = 500
SOCKETS = Path("/proc/net/tcp")
"""The sockets of this machine on Linux; elsewhere no server is found."""
LISTENING_STATE = "0A"
LOCAL_ADDRESS = "0100007F"
"""127.0.0.1 as SOCKETS writes it on a little-endian processor."""


def find_running_pages(tracking_uri: str) -> str | None:
    """Such as `http://127.0.0.1:5077`; None for a server's URI and where this user runs no `memtune ui`."""
    database = find_sqlite_path(tracking_uri)
    recorded = None if database is None else _read_private(database.parent / ADDRESS_FILE)
    found = ADDRESS_PATTERN.fullmatch(recorded or "")
    return found["url"] if found and _is_listening(int(found["port"])) else None


def _read_private(path: Path) -> str | None:
    """The text of a small file that only this user can write; None without one."""
    # O_NONBLOCK: opening a pipe returns at once.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError, UnicodeDecodeError), open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
            return file.read(MAX_ADDRESS_BYTES).decode("ascii")
    return None


def _is_listening(port: int) -> bool:
    """Whether a process of this user listens on a port of 127.0.0.1."""
    try:
        rows = [line.split() for line in SOCKETS.read_text(encoding="utf-8").splitlines()[1:]]
    except OSError:
        return False
    wanted = [f"{LOCAL_ADDRESS}:{port:04X}", LISTENING_STATE, str(os.getuid())]
    return any(len(row) > 7 and [row[1], row[3], row[7]] == wanted for row in rows)


@dataclass(frozen=True)
class ServedPages:
    """A running server of MLflow's pages."""

    process: "subprocess.Popen[bytes]"
    url: str
    """Without the token: `http://127.0.0.1:<port>`."""
    token: str
    """The token that each request must carry; new at each start."""
    address_file: Path
    """Holds `address`; only its owner can read it."""

    @property
    def address(self) -> str:
        """The address to open in a browser, with the token."""
        return f"{self.url}/?token={self.token}"

    def add_token(self, link: str) -> str:
        """A link into these pages that also gives the browser the token."""
        return link.replace(f"{self.url}/#", f"{self.address}#", 1)


@contextmanager
def serve_pages(port: int = 5000, settings: Settings | None = None) -> Iterator[ServedPages]:
    """Serve MLflow's pages over a home's store on http://127.0.0.1:<port> while the context lasts.

    Every request needs the token. The server ends with the context, also when this process receives SIGTERM,
    or SIGHUP because its terminal was closed.
    Raises TrackingError for a server's URI, for a store that does not exist, and for a port in use.
    """
    check_type("port", port, int, "the number of a port on this machine, such as 5000")
    if not 0 < port < 2**16:
        raise ArgumentError(f"port must be from 1 to 65535; got {port}")
    tracking_uri = Settings.resolve(settings).tracking_uri
    database = require_database(tracking_uri)
    token = secrets.token_urlsafe(32)
    server = start_server(tracking_uri, port, token)
    pages = ServedPages(server, f"http://127.0.0.1:{port}", token, database.parent / ADDRESS_FILE)
    try:
        with interrupt_on_stop_signals():
            _write_private(pages.address_file, pages.address + "\n")
            yield pages
    finally:
        with suppress(OSError):
            pages.address_file.unlink()
        _end_group(server)


def _end_group(server: "subprocess.Popen[bytes]") -> None:
    """End the server's process group; kill it where it takes longer than `END_SECONDS`."""
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def start_server(tracking_uri: str, port: int, token: str) -> "subprocess.Popen[bytes]":
    """Start the server in a process group of its own; connections wait until it has loaded.

    Raises TrackingError like `serve_pages`.
    """
    database = require_database(tracking_uri)
    try:
        # The socket is opened here, so that no other process can take the port before the server loads.
        socket_of_server = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise TrackingError(
            f"port {port} cannot be served: {error.strerror}; use another: memtune ui --port {port + 1}"
        ) from None
    filters = [os.environ.get("PYTHONWARNINGS"), *(f"ignore:{start}" for start in OLD_IMPORT_WARNINGS)]
    with socket_of_server as listening:
        environment = {
            **os.environ,
            **build_server_environment(tracking_uri, database.parent / "artifacts", port),
            TOKEN_VARIABLE: token,
            LISTENING_FD_VARIABLE: str(listening.fileno()),
            "PYTHONSAFEPATH": "1",  # `-c` would import modules of the working folder
            "PYTHONWARNINGS": ",".join(filter(None, filters)),
        }
        command = [sys.executable, "-c", "from memtune.tracking.ui_server import main; main()"]
        return subprocess.Popen(
            command, env=environment, start_new_session=True, pass_fds=[listening.fileno()]
        )


def require_database(tracking_uri: str) -> Path:
    """The file of a store that can be served. Raises TrackingError for any other store and a missing file."""
    database = find_sqlite_path(tracking_uri)
    if database is None:
        fix = f"open {tracking_uri}" if is_server(tracking_uri) else "start `mlflow server` next to it"
        raise TrackingError(f"{tracking_uri} is not a file that memtune can serve; {fix}")
    if not database.is_file():
        raise TrackingError(f"{database} does not exist yet; run a search or a training first")
    check_sqlite_file(database)
    return database


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read; an existing file is replaced."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
