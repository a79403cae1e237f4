"""Rules about uploads: the files that `ray up` copies to the nodes, and the project as a job's package."""

import os
from collections.abc import Iterator
from pathlib import Path

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Problem
from memtune.ray_backend.clusters.compatibility import iterate_packaged_files

MAX_UPLOAD_BYTES = 100 * 2**20
"""Bytes; the job server refuses a larger package (DASHBOARD_CLIENT_MAX_SIZE in Ray)."""


def find_missing_mounts(cluster: ClusterFile) -> Iterator[Problem]:
    """File mounts whose local side is missing, except the token: `memtune cluster up` creates it."""
    fix = "name a file or folder that exists; relative paths start at the project's folder"
    for remote, local in cluster.mounts.items():
        if not local.exists() and local.name != "auth_token":
            yield f"file_mounts.{remote}", f"{local} does not exist", fix


def find_large_uploads(cluster: ClusterFile) -> Iterator[Problem]:
    """File mounts, or a package of the project, of at least 100 MiB."""
    fix = "mount less, or keep it in shared storage"
    uploads = [
        (f"file_mounts.{name}", _count_tree_bytes(local), fix) for name, local in cluster.mounts.items()
    ]
    if (cluster.folder / "platform" / "memtune").is_dir():
        packed = sum(path.stat().st_size for path in iterate_packaged_files(cluster.folder))
        fix = "add what a job does not need to .gitignore or .rayignore; keep corpora in shared storage"
        uploads.append((str(cluster.folder), packed, fix))
    limit = f"an upload is limited to {MAX_UPLOAD_BYTES / 2**20:.0f} MiB"
    for where, size, fix in uploads:
        if size >= MAX_UPLOAD_BYTES:
            yield where, f"{size / 2**20:.0f} MiB; {limit}", fix


def _count_tree_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)


def find_shadowed_standard_library(cluster: ClusterFile) -> Iterator[Problem]:
    """`platform/__init__.py` in the project or in a mounted folder.

    It makes the source root a package that hides the standard library's `platform`: `import torch` fails
    wherever the project is the working folder.
    """
    folders = {cluster.folder, *cluster.mounts.values()}
    problem = "it hides the standard library's `platform`: importing torch or ray fails on every node"
    for root in sorted({folder if folder.name == "platform" else folder / "platform" for folder in folders}):
        if (root / "memtune").is_dir() and (root / "__init__.py").exists():
            yield str(root / "__init__.py"), problem, "delete it; platform/ is a source root, not a package"
