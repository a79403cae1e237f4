"""Which kernels multiply matrices of single precision on a CPU, found out once for each node.

torch's own choice is at half speed on some processors, where oneDNN's kernels of single precision are at
their full; `torch.backends.mkldnn.matmul.fp32_precision = "bf16"` is what leads there. On a processor that
multiplies bfloat16 the same words mean just that, at three digits. So it is tried: the route is taken where
its products are those of single precision and clearly faster. What a node has decided lies in its cache, so
that all of its trials take one route and a resumed one the same as before.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from pydantic import ValidationError
from torch import Tensor

from memtune.corpora.cache import cache_folder
from memtune.values import Value, digest

__all__ = ["Route", "probe", "take_fastest_route"]

LARGEST_ERROR = 1e-5
"""Of a product, by its norm: single precision leaves 1e-6 at most in sums this long, bfloat16 2e-3."""
SMALLEST_GAIN = 1.2
"""Less is within what two timings differ by, and a result should not turn on that."""
ROWS, WIDTH, WORDS = 256, 128, 8192
ROUNDS = 5

Product = Callable[[Tensor, Tensor], Tensor]


class Route(Value):
    """What was found out."""

    kernels: Literal["default", "onednn"]
    error: float
    """Relative, the largest of any product by the other route."""
    gain: float | None
    """Time by the default over time by the other route; None where that was not exact."""


@cache
def take_fastest_route() -> Route:
    """Multiply by this node's route from now on, in this process."""
    folder = cache_folder()
    route = _remembered(folder) or _agreed(probe(), folder)
    if route.kernels == "onednn":
        _set("bf16")
    return route


def probe(multiply: Product = torch.matmul) -> Route:
    """Try the other route on the products of an output layer and of a layer's gates."""
    pairs = _pairs()
    with _rerouted():
        error = max(_error(multiply(*pair), *pair) for pair in pairs)
    if not error <= LARGEST_ERROR:
        return Route(kernels="default", error=error, gain=None)
    gain = statistics.median(_ratio(multiply, pairs) for _ in range(ROUNDS))
    return Route(kernels="onednn" if gain >= SMALLEST_GAIN else "default", error=error, gain=gain)


def _pairs() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shapes = (ROWS, WIDTH), (WORDS, WIDTH), (ROWS, WORDS), (4 * WIDTH, WIDTH), (4, ROWS, WIDTH)
    hidden, weight, errors, gates, batch = (torch.randn(shape, generator=generator) for shape in shapes)
    return [
        (hidden, weight.t()),
        (errors, weight),
        (errors.t(), hidden),
        (hidden[:20], gates.t()),
        (batch, batch.transpose(1, 2)),
    ]


def _error(product: Tensor, left: Tensor, right: Tensor) -> float:
    exact = left.double() @ right.double()
    return float((product.double() - exact).norm() / exact.norm())


def _ratio(multiply: Product, pairs: list[tuple[Tensor, Tensor]]) -> float:
    default = _seconds(multiply, pairs)
    with _rerouted():
        return default / _seconds(multiply, pairs)


def _seconds(multiply: Product, pairs: list[tuple[Tensor, Tensor]]) -> float:
    started = time.perf_counter()
    for pair in pairs:
        multiply(*pair)
    return time.perf_counter() - started


@contextmanager
def _rerouted() -> Iterator[None]:
    before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    _set("bf16")
    try:
        yield
    finally:
        _set(before)


def _set(precision: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = precision  # type: ignore[attr-defined]


def _record(folder: Path) -> Path:
    """The file of this processor and this torch: a cache may be shared by unlike nodes."""
    processor = Path("/proc/cpuinfo")
    kinds = ("model name", "flags")
    lines = processor.read_text().splitlines() if processor.exists() else [platform.processor()]
    known = sorted({line for line in lines if line.startswith(kinds)}) or lines
    return folder / "products" / f"{digest(known, torch.__version__)[:16]}.json"


def _remembered(folder: Path) -> Route | None:
    with suppress(OSError, ValidationError):
        return Route.model_validate_json(_record(folder).read_bytes())
    return None


def _agreed(route: Route, folder: Path) -> Route:
    """The route that this node keeps: the first one written. Without a cache each process has its own."""
    record = _record(folder)
    with suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        own = record.with_suffix(f".{os.getpid()}")
        own.write_text(route.model_dump_json())
        with suppress(FileExistsError):
            os.link(own, record)
        own.unlink()
    return _remembered(folder) or route
