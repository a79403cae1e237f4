"""How much memory a trial takes, by formula, before anything is built.

Counted: parameters, gradients, what the optimiser keeps, the copy of the best weights, and the activations
that a batch leaves for its backward pass. A family tells its size and its multiply-adds for any vocabulary;
how these grow with the vocabulary under a full softmax gives the widths, so no family needs a formula of its
own here. Its output layer tells how many logits there are at once.
"""

import os
import resource
from contextlib import suppress
from pathlib import Path

import torch

from memtune.corpora.protocols import Protocol, SentenceProtocol, StreamProtocol
from memtune.corpora.store import Split
from memtune.models import Architecture
from memtune.models.outputs import SoftmaxConfig
from memtune.training.configuration import TrialConfig
from memtune.values import Value

__all__ = [
    "MemoryEstimate",
    "advice",
    "available_bytes",
    "estimate",
    "forget_peak",
    "largest_batch",
    "longest_row",
    "peak_bytes",
    "ran_out",
    "resident_bytes",
]

FLOAT = 4
KEPT_PER_UNIT = 3
"""Activations kept for each output of a matrix product: it, its non-linearity and a gradient under way."""


class MemoryEstimate(Value):
    """Bytes a trial holds while it takes a step."""

    parameters: int
    gradients: int
    optimiser: int
    best_weights: int
    activations: int

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return self.parameters + self.gradients + self.optimiser + self.best_weights + self.activations

    def __str__(self) -> str:
        """The total and its parts in MiB."""
        parts = ", ".join(
            f"{name.replace('_', ' ')} {_mebibytes(size)}" for name, size in self.model_dump().items()
        )
        return f"{_mebibytes(self.total)} MiB ({parts})"


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:,.0f}"


def estimate(config: TrialConfig, vocabulary_size: int, length: int) -> MemoryEstimate:
    """The memory of a trial whose longest row has `length` tokens."""
    size = config.parameter_count(vocabulary_size) * FLOAT
    return MemoryEstimate(
        parameters=size,
        gradients=size,
        optimiser=size * config.descent.optimiser.tensors_per_parameter(),
        best_weights=size,
        activations=_activations(config, vocabulary_size, length),
    )


def _activations(config: TrialConfig, vocabulary_size: int, length: int) -> int:
    """Bytes of a batch's activations: a body linear in its tokens, and logits with their gradient."""
    assert isinstance(config.model, Architecture), "what counts leaves nothing for a backward pass"
    model = config.model.model_copy(update={"output": SoftmaxConfig()})
    embedded = model.parameter_count(vocabulary_size + 1) - model.parameter_count(vocabulary_size)
    width = model.multiply_adds(vocabulary_size + 1) - model.multiply_adds(vocabulary_size)
    body = model.multiply_adds(vocabulary_size) - width * vocabulary_size
    per_token = KEPT_PER_UNIT * body // width + embedded + model.kept_per_pair() * length
    tokens = config.protocol.batch_size * length
    logits = 2 * config.model.output.logits_held(tokens, vocabulary_size)
    return FLOAT * (tokens * per_token + logits)


def largest_batch(config: TrialConfig, vocabulary_size: int, length: int, limit: int) -> int:
    """The largest batch size whose estimate is within `limit` bytes; 0 when not even one row is."""
    low, high = 0, 2**20
    while low < high:
        middle = (low + high + 1) // 2
        protocol = config.protocol.model_copy(update={"batch_size": middle})
        tried = config.model_copy(update={"protocol": protocol})
        if estimate(tried, vocabulary_size, length).total <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def longest_row(protocol: Protocol, split: Split) -> int:
    """Tokens in the longest row of a training batch."""
    if isinstance(protocol, StreamProtocol):
        return protocol.longest
    longest = int(split.lengths.max())
    if isinstance(protocol, SentenceProtocol) and protocol.variant == "tran2016":
        return min(longest, protocol.max_length)
    return longest


def available_bytes(device: torch.device) -> int:
    """Memory there is for one process: the GPU's, or the machine's within the limits set on it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        pages, *_ = Path("/proc/self/statm").read_text().split()
        limits.append(address_space - int(pages) * os.sysconf("SC_PAGE_SIZE"))
    container = Path("/sys/fs/cgroup/memory.max")
    if container.exists() and (text := container.read_text().strip()).isdigit():
        limits.append(int(text))
    return min(limits)


def forget_peak(device: torch.device) -> None:
    """Measure `peak_bytes` from now on, where the system can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(device: torch.device) -> int:
    """The most memory held at once: by tensors on a GPU, by the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # ru_maxrss would begin with what the parent held when it started this process, and cannot be forgotten.
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """What the whole process holds in memory now."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def ran_out(error: Exception) -> bool:
    """Whether an error says that memory could not be had."""
    text = str(error)
    refused = "DefaultCPUAllocator" in text or "allocate memory" in text
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or refused


def advice(config: TrialConfig, vocabulary_size: int, length: int, device: torch.device) -> str:
    """What to tell of a trial that ran out of memory: its configuration, its estimate and what would fit."""
    batch_size = config.protocol.batch_size
    limit = available_bytes(device)
    # The formula is an estimate, and the batch size that has just failed refutes it.
    fitting = min(largest_batch(config, vocabulary_size, length, limit), batch_size // 2)
    way_out = f"a batch size of {fitting} would fit" if fitting else "no batch fits, take a smaller model"
    return (
        f"out of memory on {device} with batch size {batch_size}, rows of up to {length} tokens and "
        f"{vocabulary_size} words: estimated {estimate(config, vocabulary_size, length)} of "
        f"{_mebibytes(limit)} MiB; {way_out}. Configuration: {config.model_dump_json()}"
    )
