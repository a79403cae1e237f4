"""How many trials a cluster can run at once, on its present nodes and on those its autoscaler may add.

A cluster that scales from zero adds nodes only for requests that wait. So trials are requested up to the
largest size that the autoscaling file allows, and not up to the present size.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
    types = {
        name: NodeType(
            cpus=_read_resource(entry, "CPU"),
            gpus=_read_resource(entry, "GPU"),
            count=_read_max_workers(entry, most),
        )
        for name, entry in config.get("available_node_types", {}).items()
    }
    head = types.pop(config.get("head_node_type", ""), NodeType())
    return Capacity(
        present_nodes=tuple(present_nodes),
        head_type=head,
        worker_types=tuple(types.values()),
        max_workers=most,
    )


def _read_resource(entry: Mapping[str, Any], resource: str) -> float:
    return float((entry.get("resources") or {}).get(resource, 0))


def _read_max_workers(entry: Mapping[str, Any], default: int) -> int:
    own = entry.get("max_workers")
    return default if own is None else int(own)
