"""What travels to the nodes: the files that `ray up` copies, and the project as a job's package.

The dashboard refuses a package of 100 MiB or more. A `platform/__init__.py` would make the source root a
package that hides the standard library's `platform`: `import torch` fails wherever the project is the working
folder.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memtune.execution.clusters.file import ClusterFile, Finding

__all__ = ["LARGEST_UPLOAD", "hidden_standard_library", "large_upload", "missing_mount", "package_bytes"]

LARGEST_UPLOAD = 100 * 2**20
"""Bytes; Ray's DASHBOARD_CLIENT_MAX_SIZE."""


def missing_mount(cluster: ClusterFile) -> list[Finding]:
    """File mounts whose local side is not there; the token is made by `memtune cluster up`."""
    return [
        Finding(
            rule="upload",
            where=f"file_mounts.{remote}",
            problem=f"{local} is not there",
            fix="name a file or folder that exists; relative paths start at the project's folder",
        )
        for remote, local in cluster.mounts.items()
        if not local.exists() and local.name != "auth_token"
    ]


def large_upload(cluster: ClusterFile) -> list[Finding]:
    """File mounts, or a package of the project, of 100 MiB and more."""
    findings = [
        _too_large(f"file_mounts.{remote}", _tree_bytes(local), "mount less, or keep it in shared storage")
        for remote, local in cluster.mounts.items()
    ]
    if (cluster.folder / "platform" / "memtune").is_dir():
        fix = "name what a job does not need in .gitignore or .rayignore; corpora belong into a store"
        findings.append(_too_large(str(cluster.folder), package_bytes(cluster.folder), fix))
    return [finding for finding in findings if finding]


def package_bytes(folder: Path) -> int:
    """Bytes of the files that Ray packs when a job's working folder is `folder`: without ignored ones."""
    from ray._private.ray_constants import get_runtime_env_default_excludes
    from ray._private.runtime_env.packaging import _get_excludes as excluding
    from ray._private.runtime_env.packaging import get_excludes_from_ignore_files

    excluded = [excluding(folder, get_runtime_env_default_excludes())]
    quiet = logging.getLogger(__name__)

    def kept(path: Path, ignored_above: list[Any]) -> Iterator[Path]:
        ignored = ignored_above + get_excludes_from_ignore_files(path, include_gitignore=True, logger=quiet)
        for entry in path.iterdir():
            if any(matches(entry) for matches in ignored):
                continue
            if entry.is_dir() and not entry.is_symlink():
                yield from kept(entry, ignored)
            elif entry.is_file():
                yield entry

    return sum(path.stat().st_size for path in kept(folder, excluded))


def hidden_standard_library(cluster: ClusterFile) -> list[Finding]:
    """`platform/__init__.py` in the project or in a folder that is mounted."""
    folders = {cluster.folder, *cluster.mounts.values()}
    roots = {folder if folder.name == "platform" else folder / "platform" for folder in folders}
    return [
        Finding(
            rule="package",
            where=str(root / "__init__.py"),
            problem="it hides the standard library's `platform`: importing torch or ray fails on every node",
            fix="delete it; platform/ is a source root and no package",
        )
        for root in sorted(roots)
        if (root / "memtune").is_dir() and (root / "__init__.py").exists()
    ]


def _tree_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)


def _too_large(where: str, size: int, fix: str) -> Finding | None:
    if size < LARGEST_UPLOAD:
        return None
    limit = f"{LARGEST_UPLOAD / 2**20:.0f} MiB is the limit of an upload"
    return Finding(rule="upload", where=where, problem=f"{size / 2**20:.0f} MiB; {limit}", fix=fix)
