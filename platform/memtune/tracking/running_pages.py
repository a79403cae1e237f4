"""The address of MLflow's pages over a store in a file while `memtune ui` serves them.

`mlflow_ui` writes the address with its token into a file next to the database. A server that was killed
leaves the file behind, and another user's program may listen on its port since. So the address is used only
where this user is the one who listens there, which the kernel tells. Nothing is sent to the port, and the
token is left out of the address.
"""

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from memtune.tracking.mlflow_connection import find_sqlite_path
from memtune.tracking.mlflow_ui import ADDRESS_FILE

__all__ = ["find_running_pages"]

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
