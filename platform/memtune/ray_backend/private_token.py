"""The token of a private Ray instance: its owner can run code as this user, so only this user can read it."""

import logging
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from memtune.ray_backend.compatibility import reset_token_cache

OWNER_ONLY_MODE = 0o600
log = logging.getLogger(__name__)


@contextmanager
def use_private_token(folder: Path) -> Iterator[None]:
    """Ray started in the block has a new token in `folder`, independent of the user's variables.

    RAY_AUTH_MODE is unset because Ray then enables tokens for an instance it starts; once Ray is imported,
    setting it has no effect.
    """
    path = folder / "token"
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY_MODE), "w") as file:
        file.write(secrets.token_hex(32))
    with set_environment({"RAY_AUTH_TOKEN_PATH": str(path), "RAY_AUTH_TOKEN": None, "RAY_AUTH_MODE": None}):
        reset_token_cache()
        try:
            yield
        finally:
            reset_token_cache()


@contextmanager
def set_environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set or, where the value is None, unset variables of the environment during the block."""
    before = {name: os.environ.get(name) for name in values}
    _update_environment(values)
    try:
        yield
    finally:
        _update_environment(before)


def _update_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def protect_default_token(home: Path) -> None:
    """Let only its owner read the token of clusters in the home folder: Ray creates it with mode 0644."""
    path = home / ".ray" / "auth_token"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            path.chmod(OWNER_ONLY_MODE)
            log.warning(
                "%s had mode %04o and now has 0600; make a new token if other users of this machine may have "
                "read it",
                path,
                mode,
            )
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot protect %s: %s", path, error.strerror)
