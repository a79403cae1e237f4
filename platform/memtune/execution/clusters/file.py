"""A cluster file as a value: what `ray up` reads, with the folder its relative paths start from."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from memtune.errors import ConfigurationError
from memtune.values import Value

__all__ = ["ClusterFile", "Finding", "load_cluster", "project_folder"]


class Finding(Value):
    """One thing that is wrong with a cluster file, and what to do about it."""

    rule: str
    """The check that found it, such as "token"."""
    where: str
    """The entry of the file, dotted."""
    problem: str
    fix: str
    kind: Literal["fault", "edit"] = "fault"
    """A fault fails the check; an "edit" is a value only the user knows, asked for before a launch."""


@dataclass(frozen=True)
class ClusterFile:
    """A cluster file as written, before Ray's defaults are filled in."""

    path: Path
    folder: Path
    """Where relative paths start: the project's folder when the file lies in one, else the file's own."""
    config: dict[str, Any]

    @property
    def provider(self) -> dict[str, Any]:
        """The table `provider`; empty when it is missing or no table."""
        return self.table("provider")

    @property
    def on_premises(self) -> bool:
        """Whether the nodes are hosts that are there already (`provider.type: local`)."""
        return self.provider.get("type") == "local"

    @property
    def node_types(self) -> dict[str, dict[str, Any]]:
        """The tables of `available_node_types` by name."""
        types = self.table("available_node_types")
        return {name: entry for name, entry in types.items() if isinstance(entry, dict)}

    @property
    def mounts(self) -> dict[str, Path]:
        """Local file or folder by its path on the nodes."""
        return {
            remote: self.folder / Path(str(local)).expanduser()
            for remote, local in self.table("file_mounts").items()
        }

    def table(self, name: str) -> dict[str, Any]:
        """The table `name`; empty when it is missing or no table."""
        found = self.config.get(name)
        return found if isinstance(found, dict) else {}

    def commands(self, name: str) -> list[str]:
        """The shell commands under `name`; empty when there are none."""
        found = self.config.get(name)
        return [str(command) for command in found] if isinstance(found, list) else []

    def starts(self, name: str) -> list[str]:
        """Those commands under `name` that start Ray."""
        return [command for command in self.commands(name) if re.search(r"\bray start\b", command)]


def load_cluster(path: Path) -> ClusterFile:
    """Read a cluster file. Raises ConfigurationError when it is missing, no text, no YAML or no table."""
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; name a cluster file") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is no text: {error}; name a cluster file") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {error}") from error
    if not isinstance(config, dict):
        raise ConfigurationError(f"{path} holds no table; start from one of the files in clusters/")
    own = path.absolute().parent
    return ClusterFile(path.absolute(), project_folder(own) or own, config)


def project_folder(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds `platform/memtune`."""
    candidates = (start, *start.parents)
    return next((folder for folder in candidates if (folder / "platform" / "memtune").is_dir()), None)
