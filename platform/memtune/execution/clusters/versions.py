"""Ray and Python on the head, the workers and the client: a cluster of two versions does not come up.

A version is read where the file states it: an image's tag (`ray:2.60.0-py311-gpu`), `ray==2.60.0` or
`--python 3.11` in a set-up command, or a mounted file of pinned versions.
"""

import platform
import re
from collections.abc import Iterator
from typing import NamedTuple

from memtune.execution.clusters.file import ClusterFile, Finding
from memtune.values import Value

__all__ = ["Versions", "unequal_versions"]

RAY = re.compile(r"(?<![\w-])ray(?:\[[\w,\-]+\])?==([\w.]+)")
PYTHON = re.compile(r"(?:--python[= ]|\bpython=|\bpython)(3\.\d+)")
IMAGE = re.compile(r"ray(?:-ml)?:([\d.]+)(?:-py(3)(\d+))?")


class Versions(Value):
    """Versions on one machine; Python's as major.minor."""

    ray: str
    python: str

    @classmethod
    def here(cls) -> "Versions":
        """Those of this process."""
        import ray

        return cls(ray=ray.__version__, python=".".join(platform.python_version_tuple()[:2]))


class Stated(NamedTuple):
    """A version and the entry of the file that states it."""

    where: str
    version: str


def unequal_versions(cluster: ClusterFile, client: Versions) -> list[Finding]:
    """Entries that state another version than the client's, and versions that no entry states."""
    findings = []
    stated = {"ray": list(_stated_ray(cluster)), "python": list(_stated_python(cluster))}
    for name, own in (("ray", client.ray), ("python", client.python)):
        if not stated[name]:
            findings.append(
                Finding(
                    rule="versions",
                    where="setup_commands",
                    problem=f"nothing states which version of {name} the nodes have; this machine has {own}",
                    fix=f"state {own} in an image's tag, a set-up command or a mounted requirements.txt",
                )
            )
        findings += [
            Finding(
                rule="versions",
                where=where,
                problem=f"{name} {version} there, {own} on this machine",
                fix=f"write {own} there, or use {version} here; head, workers and client must agree",
            )
            for where, version in stated[name]
            if version != own
        ]
    return findings


def _stated_ray(cluster: ClusterFile) -> Iterator[Stated]:
    for where, command in _setup(cluster):
        yield from (Stated(where, version) for version in RAY.findall(command))
    for where, image in _images(cluster):
        yield Stated(where, image[1])
    for remote, local in cluster.mounts.items():
        if local.suffix == ".txt" and local.is_file():
            pinned = RAY.findall(local.read_text())
            yield from (Stated(f"file_mounts.{remote}", version) for version in pinned)


def _stated_python(cluster: ClusterFile) -> Iterator[Stated]:
    for where, command in _setup(cluster):
        yield from (Stated(where, version) for version in PYTHON.findall(command))
    for where, image in _images(cluster):
        if image[2]:
            yield Stated(where, f"{image[2]}.{image[3]}")


def _setup(cluster: ClusterFile) -> Iterator[tuple[str, str]]:
    for name in ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"):
        yield from ((name, command) for command in cluster.commands(name))


def _images(cluster: ClusterFile) -> Iterator[tuple[str, re.Match[str]]]:
    for name in ("image", "head_image", "worker_image"):
        found = IMAGE.search(str(cluster.table("docker").get(name, "")))
        if found:
            yield f"docker.{name}", found
