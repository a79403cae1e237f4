"""Rules about uploads: the files that `ray up` copies to the nodes, and the project as a job's package."""

import os
from pathlib import Path

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding
from memtune.ray_backend.compatibility import iterate_packaged_files

MAX_UPLOAD_BYTES = 100 * 2**20
"""Bytes; the job server refuses a larger package (DASHBOARD_CLIENT_MAX_SIZE in Ray)."""


def find_missing_mounts(cluster: ClusterFile) -> list[Finding]:
    """File mounts whose local side is missing, except the token: `memtune cluster up` creates it."""
    return [
        Finding(
            rule="upload",
            where=f"file_mounts.{remote}",
            problem=f"{local} does not exist",
            fix="name a file or folder that exists; relative paths start at the project's folder",
        )
        for remote, local in cluster.mounts.items()
        if not local.exists() and local.name != "auth_token"
    ]


def find_large_uploads(cluster: ClusterFile) -> list[Finding]:
    """File mounts, or a package of the project, of at least 100 MiB."""
    findings = [
        _check_upload_size(
            f"file_mounts.{remote}", _count_tree_bytes(local), "mount less, or keep it in shared storage"
        )
        for remote, local in cluster.mounts.items()
    ]
    if (cluster.folder / "platform" / "memtune").is_dir():
        fix = "add what a job does not need to .gitignore or .rayignore; keep corpora in shared storage"
        findings.append(_check_upload_size(str(cluster.folder), count_package_bytes(cluster.folder), fix))
    return [finding for finding in findings if finding]


def count_package_bytes(folder: Path) -> int:
    """Bytes of the files that Ray packs when a job's working folder is `folder`."""
    return sum(path.stat().st_size for path in iterate_packaged_files(folder))


def find_shadowed_standard_library(cluster: ClusterFile) -> list[Finding]:
    """`platform/__init__.py` in the project or in a mounted folder.

    It makes the source root a package that hides the standard library's `platform`: `import torch` fails
    wherever the project is the working folder.
    """
    folders = {cluster.folder, *cluster.mounts.values()}
    roots = {folder if folder.name == "platform" else folder / "platform" for folder in folders}
    return [
        Finding(
            rule="package",
            where=str(root / "__init__.py"),
            problem="it hides the standard library's `platform`: importing torch or ray fails on every node",
            fix="delete it; platform/ is a source root, not a package",
        )
        for root in sorted(roots)
        if (root / "memtune").is_dir() and (root / "__init__.py").exists()
    ]


def _count_tree_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)


def _check_upload_size(where: str, size: int, fix: str) -> Finding | None:
    if size < MAX_UPLOAD_BYTES:
        return None
    limit = f"an upload is limited to {MAX_UPLOAD_BYTES / 2**20:.0f} MiB"
    return Finding(rule="upload", where=where, problem=f"{size / 2**20:.0f} MiB; {limit}", fix=fix)
