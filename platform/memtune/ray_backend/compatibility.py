"""Ray's private functions that memtune calls: why, and what replaces one that a version of Ray no longer has.

Seen with Ray 2.60.0. `tests/unit/ray_backend/test_compatibility.py` fails when one of them changes.

- `autoscaler._private.util.prepare_config` fills in Ray's defaults; a file without them cannot be validated.
  Fallback: the file as written.
- `autoscaler._private.util.validate_config`: `ray up` validates too, but only after it has begun to launch.
  Fallback: no validation before `ray up`.
- `_private.runtime_env.packaging._get_excludes` and `get_excludes_from_ignore_files`: the size of a job's
  package is limited, and Ray decides which files it leaves out. Fallback: all files except `.git`.
- `autoscaler._private.command_runner` starts `ssh` by name and has no setting for host keys, on which
  `clusters.host_keys` relies. There is no fallback: the guard test fails.
"""

import contextlib
import copy
import io
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "ClusterConfigError",
    "complete_cluster_config",
    "iterate_packaged_files",
    "validate_cluster_config",
]

PathPredicate = Callable[[Path], bool]
RAY_LOG_PREFIX = re.compile(r"[\d-]+ [\d:,]+\s+(?:PANIC|ERR|WARN|INFO) \S+\.py:\d+ -- ")
"""The time and place with which a line of Ray's log begins."""


class ClusterConfigError(Exception):
    """Ray refuses the configuration of a cluster."""

    def __init__(self, entry: str, problem: str) -> None:
        """`entry` is the dotted name of the refused entry, or "the file"."""
        super().__init__(problem)
        self.entry, self.problem = entry, problem


def complete_cluster_config(config: dict[str, Any]) -> dict[str, Any]:
    """A cluster's configuration with the defaults that `ray up` fills in. Raises ClusterConfigError."""
    # Imported here: Ray's cluster code loads for a second, which other commands need not wait for.
    import click

    try:
        from ray.autoscaler._private.util import prepare_config
    except ImportError:
        return copy.deepcopy(config)
    # Ray prints the reason of a refusal and raises an exception without it.
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            return dict(prepare_config(copy.deepcopy(config)))
    except click.ClickException as error:
        reason = _strip_log_formatting(printed.getvalue()) or error.message
        raise ClusterConfigError("the file", reason) from error
    except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError) as error:
        # prepare_config reads entries before any validation.
        raise ClusterConfigError("the file", f"{type(error).__name__}: {error}") from error


def validate_cluster_config(config: dict[str, Any]) -> None:
    """Validate a cluster's configuration as `ray up` does. Raises ClusterConfigError."""
    import jsonschema  # type: ignore[import-untyped]

    completed = complete_cluster_config(config)
    try:
        from ray.autoscaler._private.util import validate_config
    except ImportError:
        return
    try:
        validate_config(completed)
    except jsonschema.ValidationError as error:
        entry = ".".join(str(part) for part in error.absolute_path) or "the file"
        raise ClusterConfigError(entry, error.message) from error
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ClusterConfigError("the file", str(error)) from error


def iterate_packaged_files(folder: Path) -> Iterator[Path]:
    """The files that Ray packs when a job's working folder is `folder`: those that no ignore file names."""
    excludes_by_default, find_excludes = _load_packaging_rules()

    def iterate_folder(path: Path, excludes_above: list[PathPredicate]) -> Iterator[Path]:
        excludes = excludes_above + find_excludes(path)
        for entry in path.iterdir():
            if any(is_excluded(entry) for is_excluded in excludes):
                continue
            if entry.is_dir() and not entry.is_symlink():
                yield from iterate_folder(entry, excludes)
            elif entry.is_file():
                yield entry

    yield from iterate_folder(folder, [excludes_by_default(folder)])


def _load_packaging_rules() -> tuple[Callable[[Path], PathPredicate], Callable[[Path], list[PathPredicate]]]:
    """What a working folder excludes by default, and what the ignore files of one folder exclude."""
    try:
        from ray._private.ray_constants import get_runtime_env_default_excludes
        from ray._private.runtime_env.packaging import _get_excludes, get_excludes_from_ignore_files
    except ImportError:
        return (lambda folder: lambda path: path.name == ".git"), (lambda folder: [])
    quiet = logging.getLogger(__name__)
    return (
        lambda folder: _get_excludes(folder, get_runtime_env_default_excludes()),
        lambda folder: get_excludes_from_ignore_files(folder, include_gitignore=True, logger=quiet),
    )


def _strip_log_formatting(text: str) -> str:
    """What Ray printed, without colours, line breaks and log prefixes."""
    return RAY_LOG_PREFIX.sub("", " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split()))
