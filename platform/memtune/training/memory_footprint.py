"""Sizes of a trial: estimates by formula before the model is built, and measurements of its memory.

An estimate adds up parameters, gradients, the optimiser's state, the copy of the best weights, and the
activations that a batch keeps for its backward pass. A family gives its number of parameters and of
multiply-adds for any vocabulary. Their growth with the vocabulary under a full softmax gives the widths, so
this module needs no formula for each family. The output layer gives the number of simultaneous logits.

Ray places trials by their shares of a GPU and does not limit their memory, so trials that share one must fit
it together. A share is 1/n, where n is how many times the trial's memory fits the GPU, and the worker limits
itself to its share.
"""

import ctypes
import os
import resource
import sys
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch

from memtune.corpora.batching.protocols import Protocol
from memtune.corpora.store.corpus import Corpus, Split
from memtune.errors import TrialError, WorkerError
from memtune.models.outputs.output_config import SoftmaxConfig
from memtune.spaces import SIZE_NOUNS
from memtune.training.trial_config import TrialConfig
from memtune.values import Value

FLOAT32_BYTES = 4
ACTIVATIONS_PER_OUTPUT = 3
"""Tensors kept for each output of a matrix product: the output, its non-linearity and a gradient."""
MAX_BATCH_SIZE = 2**20


class MemoryEstimate(Value):
    """Bytes that a trial holds during a step."""

    parameters: int
    gradients: int
    optimiser: int
    best_weights: int
    activations: int

    @property
    def total(self) -> int:
        """Sum of all parts, in bytes."""
        return self.parameters + self.gradients + self.optimiser + self.best_weights + self.activations

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name.replace('_', ' ')} {_format_mebibytes(size)}" for name, size in self.model_dump().items()
        )
        return f"{_format_mebibytes(self.total)} MiB ({parts})"


def _format_mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f}"


def estimate_memory(config: TrialConfig, vocabulary_size: int, length: int) -> MemoryEstimate:
    """The memory of a trial whose longest row has `length` tokens."""
    size = config.parameter_count(vocabulary_size) * FLOAT32_BYTES
    return MemoryEstimate(
        parameters=size,
        gradients=size,
        optimiser=size * config.gradient_training.tensors_per_parameter(),
        best_weights=size,
        activations=_estimate_activations(config, vocabulary_size, length),
    )


def _estimate_activations(config: TrialConfig, vocabulary_size: int, length: int) -> int:
    """Bytes of a batch's activations: those of the body, linear in its tokens, and logits with gradients."""
    network = config.model.require_network("an estimate of activations")
    model = network.model_copy(update={"output": SoftmaxConfig()})
    embedded = model.parameter_count(vocabulary_size + 1) - model.parameter_count(vocabulary_size)
    width = model.multiply_adds(vocabulary_size + 1) - model.multiply_adds(vocabulary_size)
    body = model.multiply_adds(vocabulary_size) - width * vocabulary_size
    per_token = ACTIVATIONS_PER_OUTPUT * body // width + embedded + model.count_extra_activations(length)
    tokens = config.protocol.batch_size * length
    logits = 2 * network.output.count_live_logits(tokens, vocabulary_size)
    return FLOAT32_BYTES * (tokens * per_token + logits)


def find_largest_batch(config: TrialConfig, vocabulary_size: int, length: int, limit_bytes: int) -> int:
    """The largest batch size whose estimate is within `limit_bytes`; 0 when one row exceeds it."""

    def estimate(batch_size: int) -> int:
        protocol = config.protocol.model_copy(update={"batch_size": batch_size})
        candidate = config.model_copy(update={"protocol": protocol})
        return estimate_memory(candidate, vocabulary_size, length).total

    return bisect_right(range(1, MAX_BATCH_SIZE + 1), limit_bytes, key=estimate)


def find_longest_row(protocol: Protocol, split: Split) -> int:
    """Tokens in the longest row of a training batch."""
    return protocol.count_longest_row(int(split.lengths.max()))


def measure_available_bytes(device: torch.device) -> int:
    """Bytes available to one process: of the GPU, or of the machine within the process' limits."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        with suppress(OSError):  # a system without /proc
            pages, *_ = Path("/proc/self/statm").read_text(encoding="utf-8").split()
            limits.append(address_space - int(pages) * os.sysconf("SC_PAGE_SIZE"))
    container = Path("/sys/fs/cgroup/memory.max")
    if container.exists() and (text := container.read_text(encoding="utf-8").strip()).isdigit():
        limits.append(int(text))
    return min(limits)


def measure_free_bytes() -> int:
    """Bytes of the machine's memory that this process holds or may still get; all of it without /proc."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        available = next(line for line in lines if line.startswith("MemAvailable"))
        return 1024 * int(available.split()[1]) + measure_resident_bytes()
    return measure_available_bytes(torch.device("cpu"))


def reset_peak_memory(device: torch.device) -> None:
    """Restart the measurement of `measure_peak_bytes`, where the system supports it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    return_freed_memory()  # the peak starts at what the process holds, including freed memory
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # 5 resets VmHWM, see proc(5)


def measure_peak_bytes(device: torch.device) -> int:
    """Peak memory in bytes: of the tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # ru_maxrss includes the memory of the parent at the fork and cannot be reset.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return _read_largest_resident_bytes()


def measure_resident_bytes() -> int:
    """Bytes of memory that the whole process holds now; without /proc, the most that it has held."""
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return _read_largest_resident_bytes()


def _read_largest_resident_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # of getrusage(2)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def explain_memory_errors(config: TrialConfig, corpus: Corpus, device: torch.device) -> Iterator[None]:
    """Context that turns an out-of-memory error into a TrialError with a batch size that would fit.

    Raises WorkerError where the trial fits the machine, but other processes hold too much of its memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # On a CPU torch raises a plain RuntimeError, which only its text identifies.
        is_allocation_error = any(text in str(error) for text in ("DefaultCPUAllocator", "allocate memory"))
        if not (isinstance(error, torch.OutOfMemoryError | MemoryError) or is_allocation_error):
            raise
        words, length = len(corpus.vocabulary), find_longest_row(config.protocol, corpus["train"])
        needed, limit = estimate_memory(config, words, length), measure_available_bytes(device)
        if device.type == "cpu" and measure_free_bytes() < needed.total <= limit:
            raise WorkerError(
                f"out of memory: {_format_mebibytes(measure_free_bytes())} MiB are free and the trial takes "
                f"{_format_mebibytes(needed.total)} MiB; end other processes, or lower max_concurrent"
            ) from error
        batch_size = config.protocol.batch_size
        # The estimate may be too low: the batch size that has just failed does not fit.
        fitting = min(find_largest_batch(config, words, length, limit), batch_size // 2)
        advice = f"a batch size of {fitting} would fit" if fitting else "no batch fits, use a smaller model"
        reason = str(error) or type(error).__name__  # Python's own MemoryError has no text
        raise TrialError(
            f"out of memory on {device} with batch size {batch_size}, rows of up to {length} tokens and "
            f"{words} words: estimated {needed} of {_format_mebibytes(limit)} MiB; {advice}. "
            f"Configuration: {config.model_dump_json()}\n({reason.splitlines()[0]})"
        ) from None


class TrialSizes(Value):
    """What a model takes, whatever it has learnt."""

    parameters: int
    multiply_adds: int
    """Of the forward pass per predicted token, the output layer included."""
    state: int
    """Numbers carried from one word to the next."""
    memory: int | None
    """Estimated bytes that training holds during a step; None for a model that counts."""


def compute_sizes(config: TrialConfig, corpus: Corpus) -> TrialSizes:
    """The sizes of a trial on a corpus."""
    vocabulary_size, memory = len(corpus.vocabulary), None
    if config.model.is_trained_by_gradient:
        longest = find_longest_row(config.protocol, corpus["train"])
        memory = estimate_memory(config, vocabulary_size, longest).total
    sizes = {str(kind): config.measure_size(kind, vocabulary_size) for kind in SIZE_NOUNS}
    return TrialSizes(**sizes, memory=memory)


# Names and numbers of glibc's malloc.h; the value is the largest that mallopt's int holds. The gradients and
# logits of a step are blocks of many MB. By default glibc returns such blocks to the system, and in the next
# step the kernel has to clear their pages again.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
UNREACHED_BYTES = 2**31 - 1


@cache
def keep_freed_memory() -> bool:
    """Keep freed memory in this process from now on; returns False where the C library cannot do so.

    A process then holds the memory of its largest step until it returns it. glibc before 2.35 refuses a
    threshold of mmap above 32 MiB. The trim threshold is then left alone, because setting it would also end
    glibc's own adaptation of the other one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(mallopt(name, UNREACHED_BYTES) for name in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD))


def return_freed_memory() -> None:
    """Return what the process has freed to the system, for the measurements of the next trial."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


CUDA_CONTEXT_BYTES = 700 * 2**20
"""GPU memory of a process before its first tensor: CUDA's context and the kernels of the libraries."""
WORKSPACE_BYTES = 192 * 2**20
"""Tensors of any trial: workspaces of matrix products, on the stream of training and on that of CUDA graphs.
On an H200 small trials over plain text held 130 to 210 MiB above their estimate."""
MEMORY_MARGIN_FACTOR = 1.25
"""Factor on the estimate, for fragmentation in the allocator and temporary buffers of kernels."""
MAX_TRIALS_PER_GPU = 16
"""Processes on one GPU; more of them mostly wait for each other."""
RAY_RESOURCE_STEPS = 10_000
"""Ray counts resources in ten-thousandths."""


def compute_gpu_bytes(estimated_bytes: int) -> int:
    """GPU memory of a trial whose tensors are estimated at `estimated_bytes`."""
    return int(estimated_bytes * MEMORY_MARGIN_FACTOR) + WORKSPACE_BYTES + CUDA_CONTEXT_BYTES


def compute_gpu_share(estimated_bytes: int, gpu_bytes: int) -> float | None:
    """The share of a GPU for a trial; None when the trial does not fit a whole GPU."""
    together = min(gpu_bytes // compute_gpu_bytes(estimated_bytes), MAX_TRIALS_PER_GPU)
    return (RAY_RESOURCE_STEPS // together) / RAY_RESOURCE_STEPS if together else None


def compute_tensor_fraction(share: float, gpu_bytes: int) -> float:
    """The fraction of a GPU's memory that the tensors of a trial with this share may take."""
    return max(0.0, share - CUDA_CONTEXT_BYTES / gpu_bytes)
