"""The torch device of a name, and what a result depends on of this machine."""

import os
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path

import torch

from memtune.errors import ConfigurationError
from memtune.number_format import format_count


def open_device(name: str) -> torch.device:
    """The device "cpu", "cuda" or "cuda:1", which computes float32 in full precision from now on.

    Raises ConfigurationError for an unknown or missing device.
    """
    # Two digits: torch takes an index beyond 127 for that of another GPU.
    if not re.fullmatch(r"cpu|cuda(:(0|[1-9][0-9]?))?", name):
        raise ConfigurationError(
            f'device must be "cpu", "cuda" or one GPU of several such as "cuda:1", got "{name}"'
        )
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(f'device "{name}" is not available: torch finds no GPU; set device = "cpu"')
    if device.type == "cuda":
        if (device.index or 0) >= (count := torch.cuda.device_count()):
            found = format_count(count, "GPU")
            raise ConfigurationError(f'device "{name}" is not available: torch finds {found}, the first is 0')
        # By default cuDNN's recurrent networks round float32 operands to the 10 bits of TensorFloat-32, which
        # is not the precision that a trial states. Both kinds of cuDNN are set, because torch's older switch
        # torch.backends.cudnn.allow_tf32 raises an error where they differ.
        for operations in ("cudnn.rnn", "cudnn.conv", "cuda.matmul"):
            attrgetter(operations)(torch.backends).fp32_precision = "ieee"
    return device


def has_bfloat16_instructions() -> bool:
    """Whether the processor has AMX-BF16 or AVX512-BF16; others emulate bfloat16, slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))


@cache
def describe_environment() -> dict[str, str]:
    """The versions and the machine of this process: with the configuration, what a result may depend on."""
    try:
        release = version("memtune")
    except PackageNotFoundError:
        release = "unreleased"
    found = {
        "memtune": release,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": f"{_read_processor_name()}, {os.cpu_count()} cores",
    }
    if torch.cuda.is_available():
        found["GPU"] = torch.cuda.get_device_name()
    return found


def _read_processor_name() -> str:
    """Such as `Intel(R) Xeon(R) Platinum 8481C CPU`; the architecture where the system does not tell."""
    try:
        found = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE
        )
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()
