"""What a trial has used: tokens, and the time of the cores and GPUs that it reserved."""

import time
from collections.abc import Iterable

from pydantic import Field

from memtune.values import Value


class NodeSeconds(Value):
    """Reserved cores and GPUs on nodes of one type, times the seconds for which they were reserved."""

    cpu: float = 0.0
    gpu: float = 0.0


class Usage(Value):
    """What a trial has used over all its workers, according to its checkpoints and reports."""

    tokens: int = 0
    """Predicted tokens trained on; without those of a checkpoint that another study trained."""
    nodes: dict[str, NodeSeconds] = Field(default_factory=dict)
    """By the name of the node's type; "" where nodes have no type."""

    @property
    def cpu_seconds(self) -> float:
        """Core seconds on all nodes."""
        return sum(seconds.cpu for seconds in self.nodes.values())

    @property
    def tokens_per_second(self) -> float | None:
        """Trained tokens per second of a reserved core; None where nothing was trained."""
        seconds = self.cpu_seconds
        return self.tokens / seconds if seconds and self.tokens else None

    @property
    def gpu_seconds(self) -> float:
        """GPU seconds on all nodes."""
        return sum(seconds.gpu for seconds in self.nodes.values())


def add_usages(usages: Iterable[Usage]) -> Usage:
    """The sum of several trials' usage."""
    tokens, nodes = 0, dict[str, NodeSeconds]()
    for usage in usages:
        tokens += usage.tokens
        for name, seconds in usage.nodes.items():
            before = nodes.get(name, NodeSeconds())
            nodes[name] = NodeSeconds(cpu=before.cpu + seconds.cpu, gpu=before.gpu + seconds.gpu)
    return Usage(tokens=tokens, nodes=nodes)


class UsageTotal:
    """What all trials of a study have used, without a value for each trial that has ended."""

    def __init__(self) -> None:
        self._ended, self._ended_identities = Usage(), set[str]()
        self._open: dict[str, Usage] = {}
        """What each trial that has not ended has used, by identity."""

    @property
    def sum(self) -> Usage:
        """What all trials together have used."""
        return add_usages([self._ended, *self._open.values()])

    def count(self, identity: str, usage: Usage, *, has_ended: bool) -> None:
        """Count what a trial has used so far, in the place of what it had used before, until it has ended."""
        if identity in self._ended_identities:
            return
        self._open[identity] = usage
        if has_ended:
            self._ended = add_usages([self._ended, self._open.pop(identity)])
            self._ended_identities.add(identity)


class UsageMeter:
    """Measures what one worker adds to the usage of its trial."""

    def __init__(self, cpus: float = 1.0, gpus: float = 0.0, node_type: str = "") -> None:
        """The worker reserves `cpus` cores and `gpus` GPUs from now on."""
        self._cpus, self._gpus, self._node_type = cpus, gpus, node_type
        self._start, self._before, self._tokens_before = time.monotonic(), Usage(), 0

    def restore(self, usage: Usage, tokens: int) -> None:
        """The worker continues a trial with this usage, which has seen `tokens`."""
        self._before, self._tokens_before = usage, tokens

    def measure(self, tokens: int) -> Usage:
        """The usage of the trial when it has seen `tokens`."""
        seconds = time.monotonic() - self._start
        own = NodeSeconds(cpu=self._cpus * seconds, gpu=self._gpus * seconds)
        trained = Usage(tokens=tokens - self._tokens_before, nodes={self._node_type: own})
        return add_usages([self._before, trained])
