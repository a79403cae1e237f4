"""The connected cluster: its nodes, their GPUs, and how many trials it can run at once.

A cluster that scales from zero adds nodes only for requests that wait. So trials are requested up to the
largest size that the autoscaling file allows, and not up to the present size.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from memtune.errors import StudyError
from memtune.ray_backend.compatibility import read_autoscaling_config
from memtune.values import Value

RESOURCE_TOLERANCE = 1e-9
"""Rounding error of a quotient of resources."""


class NodeType(Value):
    """A type of nodes: the resources of each, and how many there are or may be."""

    cpus: float = 0.0
    gpus: float = 0.0
    count: int = 1

    def count_slots(self, cpus: float, gpus: float) -> int:
        """Trials with these requests that one node of the type can run at once."""
        by_cores = self.cpus // cpus
        return int(min(by_cores, self.gpus / gpus + RESOURCE_TOLERANCE) if gpus else by_cores)


class Capacity(Value):
    """The present nodes of a cluster, and the types of those that may be added."""

    present_nodes: tuple[NodeType, ...] = ()
    head_type: NodeType = NodeType()
    """The head as the autoscaling file describes it; nothing without such a file."""
    worker_types: tuple[NodeType, ...] = ()
    """The types of workers that the autoscaler starts."""
    max_workers: int = 0
    """Workers of all types at one time."""

    def count_slots(self, cpus: float, gpus: float) -> int:
        """Trials with these requests that can run at once, after the cluster has grown where it can."""
        return int(self._compute_maximum(lambda shape: shape.count_slots(cpus, gpus)))

    @property
    def max_gpus(self) -> float:
        """GPUs of the cluster, after it has grown where it can."""
        return self._compute_maximum(lambda shape: shape.gpus)

    def _compute_maximum(self, measure: Callable[[NodeType], float]) -> float:
        """The sum of a measure over all nodes, at the present or the largest size, whichever is more."""
        grown, left = measure(self.head_type), self.max_workers
        for shape in sorted(self.worker_types, key=measure, reverse=True):
            taken = min(shape.count, left)
            grown += taken * measure(shape)
            left -= taken
        return max(grown, sum(shape.count * measure(shape) for shape in self.present_nodes))


def parse_capacity(config: Mapping[str, Any], present_nodes: Iterable[NodeType]) -> Capacity:
    """The capacity of a cluster whose head was started with this autoscaling file.

    Node types without resources, which are those of existing hosts, count only when they are present.
    """
    most = int(config.get("max_workers", 0))
    types: dict[str, NodeType] = {}
    for name, entry in config.get("available_node_types", {}).items():
        resources, count = entry.get("resources") or {}, entry.get("max_workers")
        cpus, gpus = float(resources.get("CPU", 0)), float(resources.get("GPU", 0))
        types[name] = NodeType(cpus=cpus, gpus=gpus, count=most if count is None else int(count))
    head = types.pop(config.get("head_node_type", ""), NodeType())
    return Capacity(
        present_nodes=tuple(present_nodes),
        head_type=head,
        worker_types=tuple(types.values()),
        max_workers=most,
    )


NODE_TIMEOUT_SECONDS = 60.0
REFRESH_INTERVAL_SECONDS = 10.0
REST_SECONDS = 600.0
"""A node on which a trial met a fault gets no more trials for this time, where another node can hold them."""
HEAD_RESOURCE = "node:__internal_head__"


def _list_alive_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def find_autoscaling_config() -> dict[str, Any] | None:
    """The autoscaling file of the cluster's head; None for a cluster without an autoscaler.

    Ray has no call for it, so the command line of the autoscaler's process, or the RayCluster of Kubernetes,
    is read on the head: by this process if it runs there, as a job does, otherwise by a task.
    """
    here = ray.get_runtime_context()
    heads = [node["NodeID"] for node in _list_alive_nodes() if HEAD_RESOURCE in node["Resources"]]
    if not heads:
        return None
    if heads[0] == here.get_node_id():
        return read_autoscaling_config(here.gcs_address)
    found: dict[str, Any] | None = _call_on_node(read_autoscaling_config, here.gcs_address, node=heads[0])
    return found


def find_smallest_gpu_bytes() -> int | None:
    """Bytes of the smallest GPU in the cluster; None if no node has a GPU that torch can see."""
    found = [
        _call_on_node(read_gpu_bytes, gpus=0.001, node=node["NodeID"])
        for node in _list_alive_nodes()
        if node["Resources"].get("GPU", 0)
    ]
    return min((size for size in found if size), default=None)


def read_gpu_bytes() -> int | None:
    """On a node with a GPU: its memory, in bytes."""
    # Imported here: torch is needed on nodes with a GPU only and loads for seconds.
    import torch

    return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else None


def _call_on_node(function: Any, *arguments: object, node: str, gpus: float = 0.0) -> Any:
    """The result of a function that runs on a node; None when the node does not answer."""
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(function).options(num_cpus=0, num_gpus=gpus, scheduling_strategy=strategy)
    try:
        return ray.get(task.remote(*arguments), timeout=NODE_TIMEOUT_SECONDS)
    except RayError:
        return None


class SlotPlanner:
    """Decides whether another trial may be opened; notices nodes that join or leave within seconds."""

    def __init__(self, cpus: float, gpus: float, max_trials: int | None) -> None:
        """For trials that request `cpus` each and `gpus` on average, at most `max_trials` at once.

        Raises StudyError when no node of the cluster, present or possible, can hold such a trial.
        """
        self._cpus, self._gpus, self._max_trials = cpus, gpus, max_trials
        self._autoscaling_config = find_autoscaling_config() or {}
        self._rest_ends: dict[str, float] = {}
        """When the nodes that rest get trials again, in seconds of the monotonic clock, by id."""
        self._refresh()
        if not self._capacity.count_slots(cpus, min(gpus, 1)):
            present = self._capacity.present_nodes
            nodes = "; ".join(f"{node.cpus:g} cores and {node.gpus:g} GPUs" for node in present)
            raise StudyError(
                f"a trial requests {cpus:g} cores and {gpus:.2g} GPUs, and no node has as many ({nodes}) or "
                "can be added by the autoscaler with as many; lower cpus_per_trial or gpus_per_trial"
            )

    def _refresh(self) -> None:
        """Look for the nodes that trials may use. Without one that can hold a trial, none rests any more."""
        self._last_refresh = now = time.monotonic()
        alive = _list_alive_nodes()
        self._rest_ends = {
            node["NodeID"]: end for node in alive if (end := self._rest_ends.get(node["NodeID"], now)) > now
        }
        self._capacity = self._measure_capacity(n for n in alive if n["NodeID"] not in self._rest_ends)
        if self._rest_ends and not self._capacity.count_slots(self._cpus, min(self._gpus, 1)):
            self._rest_ends = {}
            self._capacity = self._measure_capacity(alive)

    def _measure_capacity(self, nodes: Iterable[dict[str, Any]]) -> Capacity:
        resources = [node["Resources"] for node in nodes]
        types = [NodeType(cpus=each.get("CPU", 0), gpus=each.get("GPU", 0)) for each in resources]
        return parse_capacity(self._autoscaling_config, types)

    def rest(self, node_id: str) -> None:
        """Give a node no more trials for REST_SECONDS, while another one can hold them."""
        self._rest_ends[node_id] = time.monotonic() + REST_SECONDS
        self._refresh()

    def list_resting_nodes(self) -> list[str]:
        """The ids of the nodes that get no trials now."""
        if self._rest_ends:
            self._refresh()
        return sorted(self._rest_ends)

    def has_slot(self, open_gpus: Collection[float]) -> bool:
        """Whether another trial fits together with open ones of these GPU requests; the first always fits."""
        if not open_gpus or self._max_trials is not None:
            return len(open_gpus) < (self._max_trials or 1)
        if time.monotonic() - self._last_refresh >= REFRESH_INTERVAL_SECONDS:
            self._refresh()
        fits = not self._gpus or sum(open_gpus) + self._gpus <= self._capacity.max_gpus + RESOURCE_TOLERANCE
        return fits and len(open_gpus) < self._capacity.count_slots(self._cpus, 0)
