"""The rule about versions: head, workers and client have to agree on those of Ray and Python.

A version is read from the tag of an image (`ray:2.60.0-py311-gpu`), from `ray==2.60.0` or `--python 3.11` in
a setup command, or from a mounted requirements.txt.
"""

import platform
import re
from collections.abc import Iterator
from typing import NamedTuple

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Finding
from memtune.values import Value

RAY_VERSION = re.compile(r"(?<![\w-])ray(?:\[[\w,\-]+\])?==([\w.]+)")
PYTHON_VERSION = re.compile(r"(?:--python[= ]|\bpython=|\bpython)(3\.\d+)")
IMAGE_VERSIONS = re.compile(r"ray(?:-ml)?:([\d.]+)(?:-py(3)(\d+))?")


class Versions(Value):
    """The versions on one machine; Python's is major.minor."""

    ray: str
    python: str

    @classmethod
    def detect(cls) -> "Versions":
        """The versions of this process."""
        # Imported here: importing Ray takes about 1 s, and help does not need it.
        import ray

        return cls(ray=ray.__version__, python=".".join(platform.python_version_tuple()[:2]))


class DeclaredVersion(NamedTuple):
    """A version, and the entry of the file that declares it."""

    where: str
    version: str


def find_version_mismatches(cluster: ClusterFile, client: Versions) -> list[Finding]:
    """Entries that declare another version than the client's, and versions that no entry declares."""
    findings = []
    declared = {"ray": list(_find_ray_versions(cluster)), "python": list(_find_python_versions(cluster))}
    for name, own in (("ray", client.ray), ("python", client.python)):
        if not declared[name]:
            findings.append(
                Finding(
                    rule="versions",
                    where="setup_commands",
                    problem=f"no entry declares the nodes' version of {name}; this machine has {own}",
                    fix=f"declare {own} in an image's tag, a setup command or a mounted requirements.txt",
                )
            )
        findings += [
            Finding(
                rule="versions",
                where=where,
                problem=f"{name} {version} on the nodes, {own} on this machine",
                fix=f"write {own} there, or install {version} here; head, workers and client must agree",
            )
            for where, version in declared[name]
            if version != own
        ]
    return findings


def _find_ray_versions(cluster: ClusterFile) -> Iterator[DeclaredVersion]:
    for where, command in _iterate_setup_commands(cluster):
        yield from (DeclaredVersion(where, version) for version in RAY_VERSION.findall(command))
    for where, image in _iterate_image_matches(cluster):
        yield DeclaredVersion(where, image[1])
    for remote, local in cluster.mounts.items():
        if local.suffix == ".txt" and local.is_file():
            pinned = RAY_VERSION.findall(local.read_text(encoding="utf-8"))
            yield from (DeclaredVersion(f"file_mounts.{remote}", version) for version in pinned)


def _find_python_versions(cluster: ClusterFile) -> Iterator[DeclaredVersion]:
    for where, command in _iterate_setup_commands(cluster):
        yield from (DeclaredVersion(where, version) for version in PYTHON_VERSION.findall(command))
    for where, image in _iterate_image_matches(cluster):
        if image[2]:
            yield DeclaredVersion(where, f"{image[2]}.{image[3]}")


def _iterate_setup_commands(cluster: ClusterFile) -> Iterator[tuple[str, str]]:
    for name in ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"):
        yield from ((name, command) for command in cluster.commands(name))


def _iterate_image_matches(cluster: ClusterFile) -> Iterator[tuple[str, re.Match[str]]]:
    for name in ("image", "head_image", "worker_image"):
        found = IMAGE_VERSIONS.search(str(cluster.table("docker").get(name, "")))
        if found:
            yield f"docker.{name}", found
