"""A cluster file as a value: the YAML file of `ray up`, and the folder that its relative paths start from.

The token of the cluster is in a file on the client, created once, readable by its owner only, never printed.
"""

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from memtune.errors import ConfigurationError, StorageError
from memtune.values import Value

Problem = tuple[str, str, str]
"""What a rule finds: the dotted name of an entry, its problem, and the fix."""


class Finding(Value):
    """One problem of a cluster file, and its fix."""

    rule: str
    """The topic of the rule that found it, such as "token"."""
    where: str
    """The dotted name of the entry."""
    problem: str
    fix: str
    kind: Literal["fault", "edit"] = "fault"
    """A "fault" fails the check; an "edit" is a placeholder that the user replaces before a launch."""


@dataclass(frozen=True)
class ClusterFile:
    """A cluster file as written, before Ray's defaults are filled in."""

    path: Path
    folder: Path
    """The start of relative paths: the project that contains the file, or else the folder of the file."""
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """The entry `cluster_name`; Ray's own default where it is missing."""
        return str(self.config.get("cluster_name") or "default")

    @property
    def provider(self) -> dict[str, Any]:
        """The table `provider`; empty when it is missing or not a table."""
        return self.table("provider")

    @property
    def is_on_premises(self) -> bool:
        """Whether the nodes are existing hosts (`provider.type: local`), not machines of a cloud."""
        return self.provider.get("type") == "local"

    @property
    def mounts(self) -> dict[str, Path]:
        """The local file or folder of each file mount, by its path on the nodes."""
        mounts = self.table("file_mounts").items()
        return {str(remote): self.folder / os.path.expanduser(str(local)) for remote, local in mounts}

    @property
    def temporary_folder(self) -> str:
        """What a shell on a node expands to the folder that contains Ray's folder `ray`."""
        starts = "\n".join(self.ray_start_commands("head_start_ray_commands"))
        found = re.search(r"\bRAY_TMPDIR=(\S+)", starts)
        return found[1] if found else "/tmp"

    def table(self, name: str) -> dict[str, Any]:
        """The table `name`; empty when it is missing or not a table."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    def commands(self, name: str) -> list[str]:
        """The shell commands under `name`; empty when there are none."""
        found = self.config.get(name)
        return [str(command) for command in found] if isinstance(found, list) else []

    def ray_start_commands(self, name: str) -> list[str]:
        """The commands under `name` that start Ray."""
        return [command for command in self.commands(name) if re.search(r"\bray start\b", command)]


def load_cluster(path: Path) -> ClusterFile:
    """Read a cluster file. Raises ConfigurationError when it is missing, or is not a table for `ray up`."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; name a cluster file") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not a text file: {error}; name a cluster file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also a date such as 2026-13-01
        raise ConfigurationError(f"{path} is not YAML: {error}; correct that line") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"{path} is not a YAML table; start from one of the files in clusters/")
    if "apiVersion" in config:
        raise ConfigurationError(
            f"{path} is a manifest of Kubernetes, not a file of `ray up`; check it with: kubectl apply "
            f"--dry-run=server -f {path} (see docs/cluster/kubernetes.md)"
        )
    own = path.absolute().parent
    projects = (folder for folder in (own, *own.parents) if (folder / "platform" / "memtune").is_dir())
    return ClusterFile(path.absolute(), next(projects, own), config)


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
        path.touch(mode=0o600)
        path.chmod(0o600)
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
