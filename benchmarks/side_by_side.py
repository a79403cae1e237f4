"""Compare the CPU times of two implementations in one process, on one thread.

Each repeat runs both sides, in alternating order, and gives one ratio. The median of the ratios is the
result, and their quartiles are the spread.
"""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["Ratio", "compare_times", "describe_machine", "format_measure", "make_refusal"]

Work = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """The time of the first side over that of the second: median, quartiles, and median seconds per side."""

    median: float
    low: float
    high: float
    first_seconds: float
    second_seconds: float

    def scale(self, factor: float) -> "Ratio":
        """The ratio for `factor` times the time of the first side."""
        return Ratio(
            factor * self.median,
            factor * self.low,
            factor * self.high,
            factor * self.first_seconds,
            self.second_seconds,
        )

    def format_measure(
        self, name: str, goal: float, must: float | None = None, *, at_most: bool = False
    ) -> str:
        """The line of the measure, with quartiles and times."""
        spread = f"quartiles {self.low:.2f}-{self.high:.2f}"
        seconds = f"{self.first_seconds * 1e3:.1f} ms / {self.second_seconds * 1e3:.1f} ms"
        return format_measure(name, self.median, goal, must, at_most=at_most, detail=f"{spread}, {seconds}")


def format_measure(
    name: str,
    value: float,
    goal: float,
    must: float | None = None,
    *,
    at_most: bool = False,
    detail: str = "",
) -> str:
    """The line of a measure, such as `name: value (must >= 0.82, goal >= 0.90)`, and its detail.

    `benchmarks.__main__` parses this line. `at_most` means that lower is better.
    """
    sign = "<=" if at_most else ">="
    bounds = [
        f"{kind} {sign} {_format_value(bound)}" for kind, bound in (("must", must), ("goal", goal)) if bound
    ]
    return f"{name}: {_format_value(value)} ({', '.join(bounds)})   {detail}".rstrip()


def _format_value(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def compare_times(first: Work, second: Work, repeats: int) -> Ratio:
    """Time of `first` over time of `second`."""
    first(), second()  # warm-up: caches and kernels of the first call are not measured
    pairs = [_time_pair(first, second, swap=bool(repeat % 2)) for repeat in range(repeats)]
    low, median, high = statistics.quantiles([one / other for one, other in pairs], n=4)
    one, other = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    return Ratio(median, low, high, one, other)


def _time_pair(first: Work, second: Work, swap: bool) -> tuple[float, float]:
    if swap:
        other = _measure_cpu_seconds(second)
        return _measure_cpu_seconds(first), other
    return _measure_cpu_seconds(first), _measure_cpu_seconds(second)


def _measure_cpu_seconds(work: Work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def describe_machine() -> str:
    """Processor, number of threads, versions of torch and Python."""
    with open("/proc/cpuinfo") as information:
        model = next((line.split(":")[1].strip() for line in information if "model name" in line), "unknown")
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{model}, threads: {torch.get_num_threads()}, {versions}"


def make_refusal(error: AssertionError) -> SystemExit:
    """The error that ends a benchmark whose sides disagree."""
    return SystemExit(f"no time is reported: the fast side disagrees with its reference: {error}")
