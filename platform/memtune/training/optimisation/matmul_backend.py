"""The kernels of float32 matrix products on a CPU, measured once on each node.

On some processors torch's default kernels reach half the speed of oneDNN's float32 kernels, which
`torch.backends.mkldnn.matmul.fp32_precision = "bf16"` selects there. On a processor with bfloat16
instructions the same setting computes in bfloat16, with three digits. Therefore a node measures both: it
uses oneDNN if the products have float32 precision and are clearly faster. The node's cache stores the result,
so that all trials on the node, resumed ones included, use the same kernels.
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

from memtune.corpora.store.node_cache import resolve_cache_folder
from memtune.values import Value, digest

MAX_RELATIVE_ERROR = 1e-5
"""Largest relative error of a product, by norm: float32 gives up to 1e-6 here, bfloat16 2e-3."""
MIN_SPEEDUP = 1.2
"""Smallest speedup that selects oneDNN; smaller ones are within the noise of the timings."""
ROWS, WIDTH, WORDS = 256, 128, 8192
TIMING_ROUNDS = 5

Matmul = Callable[[Tensor, Tensor], Tensor]


class MatmulBackend(Value):
    """Kernels of a node and their measurement."""

    kernels: Literal["default", "onednn"]
    error: float
    """Largest relative error of a product with oneDNN."""
    gain: float | None
    """Seconds with the default kernels divided by seconds with oneDNN; None if oneDNN is not exact."""


@cache
def select_backend() -> MatmulBackend:
    """Select this node's kernels in this process; measures them if the node's cache has no result."""
    folder = resolve_cache_folder()
    backend = _load_cached_backend(folder) or store_backend(probe_backends(), folder)
    _set_matmul_precision("bf16" if backend.kernels == "onednn" else "none")
    return backend


def probe_backends(multiply: Matmul = torch.matmul) -> MatmulBackend:
    """Measure oneDNN on the products of an output layer and of a layer's gates."""
    pairs = _make_test_matrices()
    with _use_onednn():
        error = max(_measure_relative_error(multiply, *pair) for pair in pairs)
    if not error <= MAX_RELATIVE_ERROR:
        return MatmulBackend(kernels="default", error=error, gain=None)
    gain = statistics.median(_measure_speedup(multiply, pairs) for _ in range(TIMING_ROUNDS))
    return MatmulBackend(kernels="onednn" if gain >= MIN_SPEEDUP else "default", error=error, gain=gain)


def _make_test_matrices() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shapes = (ROWS, WIDTH), (WORDS, WIDTH), (ROWS, WORDS), (4 * WIDTH, WIDTH), (4, ROWS, WIDTH)
    hidden, weight, errors, gates, batch = (
        torch.randn(shape, generator=generator, dtype=torch.float32) for shape in shapes
    )
    return [
        (hidden, weight.t()),
        (errors, weight),
        (errors.t(), hidden),
        (hidden[:20], gates.t()),
        (batch, batch.transpose(1, 2)),
    ]


def _measure_relative_error(multiply: Matmul, left: Tensor, right: Tensor) -> float:
    exact = left.double() @ right.double()
    return float((multiply(left, right).double() - exact).norm() / exact.norm())


def _measure_speedup(multiply: Matmul, pairs: list[tuple[Tensor, Tensor]]) -> float:
    default = _measure_seconds(multiply, pairs)
    with _use_onednn():
        return default / _measure_seconds(multiply, pairs)


def _measure_seconds(multiply: Matmul, pairs: list[tuple[Tensor, Tensor]]) -> float:
    started = time.perf_counter()
    for pair in pairs:
        multiply(*pair)
    return time.perf_counter() - started


@contextmanager
def _use_onednn() -> Iterator[None]:
    before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    _set_matmul_precision("bf16")
    try:
        yield
    finally:
        _set_matmul_precision(before)


def _set_matmul_precision(precision: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = precision  # type: ignore[attr-defined]


def _find_cache_file(folder: Path) -> Path:
    """The file for this processor and version of torch; different nodes may share a cache."""
    processor = Path("/proc/cpuinfo")
    kinds = ("model name", "flags")
    lines = (
        processor.read_text(encoding="utf-8").splitlines() if processor.exists() else [platform.processor()]
    )
    known = sorted({line for line in lines if line.startswith(kinds)}) or lines
    return folder / "matmul_backends" / f"{digest(known, torch.__version__)[:16]}.json"


def _load_cached_backend(folder: Path) -> MatmulBackend | None:
    with suppress(OSError, ValidationError):
        return MatmulBackend.model_validate_json(_find_cache_file(folder).read_bytes())
    return None


def store_backend(backend: MatmulBackend, folder: Path) -> MatmulBackend:
    """Store the result in a cache unless another process has stored one; returns the stored result.

    Without a writable cache each process uses its own result.
    """
    record = _find_cache_file(folder)
    with suppress(OSError):
        record.parent.mkdir(parents=True, exist_ok=True)
        temporary = record.with_suffix(f".{os.getpid()}")
        try:
            temporary.write_text(backend.model_dump_json(), encoding="utf-8")
            os.link(temporary, record)
        finally:
            temporary.unlink(missing_ok=True)
    return _load_cached_backend(folder) or backend
