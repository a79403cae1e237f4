"""The rule about versions: head, workers and client have to agree on those of Ray and Python.

A version is read from the tag of an image (`ray:2.60.0-py311-gpu`), from `ray==2.60.0` or `--python 3.11` in
a setup command, or from a mounted requirements.txt.
"""

import platform
import re
from collections.abc import Iterator

from memtune.ray_backend.clusters.cluster_file import ClusterFile, Problem
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


def find_version_mismatches(cluster: ClusterFile, client: Versions) -> Iterator[Problem]:
    """Entries that declare another version than the client's, and versions that no entry declares."""
    declared = {"ray": [*_find_ray_versions(cluster)], "python": [*_find_python_versions(cluster)]}
    for name, own in client.model_dump().items():
        if not declared[name]:
            problem = f"no entry declares the nodes' version of {name}; this machine has {own}"
            fix = f"declare {own} in an image's tag, a setup command or a mounted requirements.txt"
            yield "setup_commands", problem, fix
        for where, version in declared[name]:
            if version != own:
                fix = f"write {own} there, or install {version} here; head, workers and client must agree"
                yield where, f"{name} {version} on the nodes, {own} on this machine", fix


def _find_ray_versions(cluster: ClusterFile) -> Iterator[tuple[str, str]]:
    """(entry of the file, version) of each declaration."""
    yield from _search_setup_commands(cluster, RAY_VERSION)
    for where, image in _iterate_image_matches(cluster):
        yield where, image[1]
    for remote, local in cluster.mounts.items():
        if local.suffix == ".txt" and local.is_file():
            pinned = RAY_VERSION.findall(local.read_text(encoding="utf-8"))
            yield from ((f"file_mounts.{remote}", version) for version in pinned)


def _find_python_versions(cluster: ClusterFile) -> Iterator[tuple[str, str]]:
    yield from _search_setup_commands(cluster, PYTHON_VERSION)
    for where, image in _iterate_image_matches(cluster):
        if image[2]:
            yield where, f"{image[2]}.{image[3]}"


def _search_setup_commands(cluster: ClusterFile, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for name in ("initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands"):
        for command in cluster.commands(name):
            yield from ((name, version) for version in pattern.findall(command))


def _iterate_image_matches(cluster: ClusterFile) -> Iterator[tuple[str, re.Match[str]]]:
    for name in ("image", "head_image", "worker_image"):
        found = IMAGE_VERSIONS.search(str(cluster.table("docker").get(name, "")))
        if found:
            yield f"docker.{name}", found
