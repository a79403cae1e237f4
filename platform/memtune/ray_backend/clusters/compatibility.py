"""Ray's internals that clusters and jobs depend on, and why. Seen with Ray 2.60.0.

Every version that pyproject.toml allows has them: `tests/unit/ray_backend/test_compatibility.py` fails when
one of them changes.

- `autoscaler._private.util.prepare_config` fills in Ray's defaults; a file without them cannot be validated.
- `autoscaler._private.util.validate_config`: `ray up` validates too, but only after it has begun to launch.
- `_private.runtime_env.packaging._get_excludes` and `get_excludes_from_ignore_files`: the size of a job's
  package is limited, and Ray decides which files it leaves out.
- The names of the loggers that log each step of an upload.
- `autoscaler._private.command_runner` starts `ssh` by name and has no setting for host keys, on which
  `clusters.ray_commands` relies.
"""

import copy
import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click

RAY_LOG_PREFIX = re.compile(r"[\d-]+ [\d:,]+\s+(?:PANIC|ERR|WARN|INFO) \S+\.py:\d+ -- ")
"""The time and place with which a line of Ray's log begins."""
UPLOAD_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers of Ray that log each step of an upload."""


class ClusterConfigError(Exception):
    """Ray refuses the configuration of a cluster."""

    def __init__(self, entry: str, problem: str) -> None:
        """`entry` is the dotted name of the refused entry, or "the file"."""
        super().__init__(problem)
        self.entry, self.problem = entry, problem


def complete_cluster_config(config: dict[str, Any]) -> dict[str, Any]:
    """A cluster's configuration with the defaults that `ray up` fills in. Raises ClusterConfigError."""
    # Imported here, as below: Ray's modules load for up to two seconds, and other commands need none.
    from ray.autoscaler._private.util import prepare_config

    # Ray prints the reason of a refusal and raises an exception without it.
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return dict(prepare_config(copy.deepcopy(config)))
    except click.ClickException as error:
        # Without colours, line breaks and log prefixes.
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue()).split())
        reason = RAY_LOG_PREFIX.sub("", text) or error.message
        raise ClusterConfigError("the file", reason) from error
    except (AssertionError, AttributeError, KeyError, NotImplementedError, TypeError) as error:
        # prepare_config reads entries before any validation.
        raise ClusterConfigError("the file", f"{type(error).__name__}: {error}") from error


def validate_cluster_config(config: dict[str, Any]) -> None:
    """Validate a cluster's configuration as `ray up` does. Raises ClusterConfigError."""
    import jsonschema  # type: ignore[import-untyped]
    from ray.autoscaler._private.util import validate_config

    completed = complete_cluster_config(config)
    try:
        validate_config(completed)
    except jsonschema.ValidationError as error:
        entry = ".".join(str(part) for part in error.absolute_path) or "the file"
        raise ClusterConfigError(entry, error.message) from error
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        raise ClusterConfigError("the file", str(error)) from error


def iterate_packaged_files(folder: Path) -> Iterator[Path]:
    """The files that Ray packs when a job's working folder is `folder`: those that no ignore file names."""
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import _get_excludes, get_excludes_from_ignore_files

    quiet = logging.getLogger(__name__)

    def iterate_folder(path: Path, excludes_above: list[Callable[[Path], bool]]) -> Iterator[Path]:
        own = get_excludes_from_ignore_files(path, include_gitignore=True, logger=quiet)
        excludes = excludes_above + own
        for entry in path.iterdir():
            if any(is_excluded(entry) for is_excluded in excludes):
                continue
            if entry.is_dir() and not entry.is_symlink():
                yield from iterate_folder(entry, excludes)
            elif entry.is_file():
                yield entry

    yield from iterate_folder(folder, [_get_excludes(folder, get_runtime_env_default_excludes())])
