"""Two ways of doing the same work, timed in turns in one process, so that only their ratio counts.

CPU time of this process on one thread; each repeat runs both sides, in alternating order, and gives one
ratio. The median of those ratios is the result, their quartiles the spread.
"""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["Ratio", "compare", "describe_machine", "line", "refuse"]

Work = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """How many times longer the first side took than the second."""

    median: float
    low: float
    high: float
    first_seconds: float
    second_seconds: float

    def times(self, factor: float) -> "Ratio":
        """The same where the work of the first side counts `factor` times."""
        ratios = (factor * ratio for ratio in (self.median, self.low, self.high))
        return Ratio(*ratios, factor * self.first_seconds, self.second_seconds)

    def line(self, name: str, goal: float, must: float | None = None, *, at_most: bool = False) -> str:
        """The measure's line, with what the ratio is made of."""
        spread = f"quartiles {self.low:.2f}-{self.high:.2f}"
        seconds = f"{self.first_seconds * 1e3:.1f} ms / {self.second_seconds * 1e3:.1f} ms"
        return line(name, self.median, goal, must, at_most=at_most, detail=f"{spread}, {seconds}")


def line(
    name: str,
    value: float,
    goal: float,
    must: float | None = None,
    *,
    at_most: bool = False,
    detail: str = "",
) -> str:
    """`name: value (must >= 0.82, goal >= 0.90)`, then any detail: what the table of all measures reads.

    `at_most` where lower is better.
    """
    sign = "<=" if at_most else ">="
    bounds = [f"{kind} {sign} {_digits(bound)}" for kind, bound in (("must", must), ("goal", goal)) if bound]
    return f"{name}: {_digits(value)} ({', '.join(bounds)})   {detail}".rstrip()


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def compare(first: Work, second: Work, repeats: int) -> Ratio:
    """Time of `first` over time of `second`."""
    first(), second()
    pairs = [_pair(first, second, swap=bool(repeat % 2)) for repeat in range(repeats)]
    low, median, high = statistics.quantiles([one / other for one, other in pairs], n=4)
    one, other = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    return Ratio(median, low, high, one, other)


def _pair(first: Work, second: Work, swap: bool) -> tuple[float, float]:
    if swap:
        other = _seconds(second)
        return _seconds(first), other
    return _seconds(first), _seconds(second)


def _seconds(work: Work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def describe_machine() -> str:
    """Processor, threads and versions, for the head of a result."""
    with open("/proc/cpuinfo") as information:
        model = next((line.split(":")[1].strip() for line in information if "model name" in line), "unknown")
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{model}, threads: {torch.get_num_threads()}, {versions}"


def refuse(error: AssertionError) -> SystemExit:
    """No time is worth printing when the result is wrong."""
    return SystemExit(f"refused: the fast side disagrees with its reference: {error}")
