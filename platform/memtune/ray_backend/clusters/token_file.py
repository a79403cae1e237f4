"""The token file on the client: created once, readable by its owner only, never printed."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from memtune.errors import StorageError
from memtune.ray_backend.clusters.cluster_file import ClusterFile

OWNER_ONLY_MODE = 0o600


def find_token_file(cluster: ClusterFile) -> Path:
    """The client's token file: the one that the cluster file mounts, or else Ray's default."""
    mounted = (local for remote, local in cluster.mounts.items() if remote.endswith(".ray/auth_token"))
    return next(mounted, Path.home() / ".ray" / "auth_token")


def ensure_token(path: Path) -> bool:
    """Create a missing token, and set the mode of its file to 0600. Returns whether it was created.

    Raises StorageError when the file cannot be written or its mode cannot be set.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_missing = not path.exists() or not path.read_text(encoding="utf-8").strip()
        path.touch(mode=OWNER_ONLY_MODE)
        path.chmod(OWNER_ONLY_MODE)
        if is_missing:
            path.write_text(secrets.token_hex(32), encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot write the cluster's token to {path}: {error.strerror}; make its folder writable"
        ) from error
    return is_missing


def read_token(environment: Mapping[str, str]) -> str | None:
    """The token that Ray's own commands would send; None without a token or with another RAY_AUTH_MODE.

    Raises StorageError when its file cannot be read.
    """
    if environment.get("RAY_AUTH_MODE", "token") != "token":
        return None
    if environment.get("RAY_AUTH_TOKEN"):
        return environment["RAY_AUTH_TOKEN"]
    configured = environment.get("RAY_AUTH_TOKEN_PATH")
    path = Path(configured).expanduser() if configured else Path.home() / ".ray" / "auth_token"
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        if configured is None:
            return None
        raise StorageError(
            f"RAY_AUTH_TOKEN_PATH names {path}, which does not exist; copy the head's token there"
        ) from None
    except OSError as error:
        raise StorageError(
            f"cannot read the cluster's token in {path}: {error.strerror}; make it readable (mode 0600)"
        ) from error
