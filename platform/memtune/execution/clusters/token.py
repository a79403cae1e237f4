"""The token file on the client: made once, readable by its owner alone, never printed."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from memtune.errors import StorageError
from memtune.execution.clusters.file import ClusterFile

__all__ = ["ensure_token", "read_token", "token_file"]

OWNER_ALONE = 0o600


def token_file(cluster: ClusterFile) -> Path:
    """The client's token file: the one that the cluster file mounts, else where Ray looks for it."""
    mounted = (local for remote, local in cluster.mounts.items() if remote.endswith(".ray/auth_token"))
    return next(mounted, Path.home() / ".ray" / "auth_token")


def ensure_token(path: Path) -> bool:
    """Make the token where there is none and let only its owner read it; whether it was made.

    Raises StorageError when the file cannot be made or its rights not be set.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = not path.exists() or not path.read_text().strip()
        path.touch(mode=OWNER_ALONE)
        path.chmod(OWNER_ALONE)
        if made:
            path.write_text(secrets.token_hex(32))
    except OSError as error:
        raise StorageError(f"cannot keep the cluster's token in {path}: {error.strerror}") from error
    return made


def read_token(environment: Mapping[str, str]) -> str | None:
    """The token that Ray's own commands would send, or None where there is none or none is to be sent.

    Raises StorageError when its file cannot be read.
    """
    if environment.get("RAY_AUTH_MODE", "token") != "token":
        return None
    if environment.get("RAY_AUTH_TOKEN"):
        return environment["RAY_AUTH_TOKEN"]
    named = environment.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named).expanduser() if named else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        if named is None:
            return None
        raise StorageError(f"no token in {path}, which RAY_AUTH_TOKEN_PATH names; copy the head's") from None
    except OSError as error:
        raise StorageError(f"cannot read the cluster's token in {path}: {error.strerror}") from error
