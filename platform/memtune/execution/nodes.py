"""What the connected cluster says of itself: cores, GPUs and their memory, what may be added."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import ray
import yaml
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from memtune.errors import StudyError
from memtune.execution.capacity import EPSILON, Shape, read_autoscaling

__all__ = ["Room", "autoscaling", "present", "smallest_gpu"]

ANSWER_SECONDS = 60.0
REFRESHED_EVERY = 10.0
HEAD = "node:__internal_head__"


def present() -> list[Shape]:
    """The nodes that are in the cluster now."""
    return [
        Shape(cpus=node["Resources"].get("CPU", 0), gpus=node["Resources"].get("GPU", 0)) for node in _alive()
    ]


def _alive() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def autoscaling() -> dict[str, Any] | None:
    """The autoscaling file of the cluster's head, or None where the cluster does not grow.

    Ray has no call for it, so the head looks up what its autoscaler was started with: in this process when it
    runs on the head, as a job does, else in a task.
    """
    here = ray.get_runtime_context()
    address = here.gcs_address
    for node in _alive():
        if HEAD in node["Resources"] and node["NodeID"] == here.get_node_id():
            return read_monitor(address)
        if HEAD in node["Resources"]:
            found: dict[str, Any] | None = _answer(read_monitor, address, node=node["NodeID"])
            return found
    return None


def read_monitor(gcs_address: str) -> dict[str, Any] | None:
    """On the head: the file given to the autoscaler that runs for this cluster."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        files = [word.partition("=")[2] for word in words if word.startswith("--autoscaling-config=")]
        if files and f"--gcs-address={gcs_address}" in words:
            config = yaml.safe_load(Path(files[0]).expanduser().read_text())
            return config if isinstance(config, dict) else None
    return None


def smallest_gpu() -> int | None:
    """Bytes of the smallest GPU in the cluster, None where no node has one that torch can see."""
    found = [
        _answer(gpu_bytes, gpus=0.001, node=node["NodeID"])
        for node in _alive()
        if node["Resources"].get("GPU", 0)
    ]
    return min((size for size in found if size), default=None)


def gpu_bytes() -> int | None:
    """On a node with a GPU: its memory, in bytes."""
    import torch

    return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else None


def _answer(question: Any, *arguments: object, node: str, gpus: float = 0.0) -> Any:
    """What a function says on a node; None when the node does not answer."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    asked = ray.remote(question).options(num_cpus=0, num_gpus=gpus, scheduling_strategy=there)
    try:
        return ray.get(asked.remote(*arguments), timeout=ANSWER_SECONDS)
    except RayError:
        return None


class Room:
    """Whether another trial may be opened; nodes that come or go are heeded within seconds."""

    def __init__(self, cpus: float, gpus: float, most: int | None) -> None:
        """For trials that ask for `cpus` and on average for `gpus`; `most` bounds them whatever there is.

        Raises StudyError when no node there is, or may be added, holds one.
        """
        self._cpus, self._gpus, self._most = cpus, gpus, most
        self._autoscaling = autoscaling() or {}
        self._look()
        if not self._capacity.slots(cpus, min(gpus, 1)):
            there = self._capacity.present
            nodes = "; ".join(f"{shape.cpus:g} cores and {shape.gpus:g} GPUs" for shape in there)
            raise StudyError(
                f"a trial asks for {cpus:g} cores and {gpus:.2g} GPUs, which no node has ({nodes}) and the "
                "cluster's autoscaler adds none that has; lower cpus_per_trial or gpus_per_trial"
            )

    def _look(self) -> None:
        self._capacity = read_autoscaling(self._autoscaling, present())
        self._looked = time.monotonic()

    def another(self, taken: Collection[float]) -> bool:
        """Whether there is room beside open trials that take so many GPUs each; always for a first one."""
        if not taken or self._most is not None:
            return len(taken) < (self._most or 1)
        if time.monotonic() - self._looked >= REFRESHED_EVERY:
            self._look()
        fits = not self._gpus or sum(taken) + self._gpus <= self._capacity.gpus + EPSILON
        return fits and len(taken) < self._capacity.slots(self._cpus, 0)
