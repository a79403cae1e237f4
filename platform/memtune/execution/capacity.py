"""How many trials a cluster holds: on the nodes there are, and on those its autoscaler may add.

A cluster that scales from zero has no room before something asks for it. So the trials that are waiting are
counted against what the autoscaling file lets the cluster become, and all of them are asked for at once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from memtune.values import Value

__all__ = ["EPSILON", "Capacity", "Shape", "read_autoscaling"]

EPSILON = 1e-9
"""Forgives a quotient's last digits."""


class Shape(Value):
    """Nodes that are alike: what each has, and how many there are or may be."""

    cpus: float = 0.0
    gpus: float = 0.0
    count: int = 1

    def holds(self, cpus: float, gpus: float) -> int:
        """Trials that ask for so much each and that one such node holds."""
        by_cores = self.cpus // cpus
        return int(min(by_cores, self.gpus / gpus + EPSILON) if gpus else by_cores)


class Capacity(Value):
    """The nodes of a cluster, and the types of those it may become."""

    present: tuple[Shape, ...] = ()
    head: Shape = Shape()
    """The head as the autoscaling file describes it; nothing without such a file."""
    workers: tuple[Shape, ...] = ()
    """The types of workers that the autoscaler starts."""
    max_workers: int = 0
    """Workers of all types at one time."""

    def slots(self, cpus: float, gpus: float) -> int:
        """Trials of this request that run at once: now, or with all the nodes that may be added."""
        return int(self._most(lambda shape: shape.holds(cpus, gpus)))

    @property
    def gpus(self) -> float:
        """GPUs there are, or may be."""
        return self._most(lambda shape: shape.gpus)

    def _most(self, measure: Callable[[Shape], float]) -> float:
        """The measure of all nodes: now, or with the workers that may be added, the largest first."""
        grown, left = measure(self.head), self.max_workers
        for shape in sorted(self.workers, key=measure, reverse=True):
            taken = min(shape.count, left)
            grown += taken * measure(shape)
            left -= taken
        return max(grown, sum(shape.count * measure(shape) for shape in self.present))


def read_autoscaling(config: Mapping[str, Any], present: Iterable[Shape]) -> Capacity:
    """The capacity of a cluster whose head was started with this autoscaling file.

    Node types without resources, those of hosts that are there already, count only once they are present.
    """
    most = int(config.get("max_workers", 0))
    types = {
        name: Shape(cpus=_number(entry, "CPU"), gpus=_number(entry, "GPU"), count=_most(entry, most))
        for name, entry in config.get("available_node_types", {}).items()
    }
    head = types.pop(config.get("head_node_type", ""), Shape())
    return Capacity(present=tuple(present), head=head, workers=tuple(types.values()), max_workers=most)


def _number(entry: Mapping[str, Any], resource: str) -> float:
    return float((entry.get("resources") or {}).get(resource, 0))


def _most(entry: Mapping[str, Any], most: int) -> int:
    own = entry.get("max_workers")
    return most if own is None else int(own)
