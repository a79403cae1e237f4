"""The torch device of a name."""

import torch

from memtune.errors import ConfigurationError

__all__ = ["find_device", "has_bfloat16_instructions"]


def find_device(name: str) -> torch.device:
    """The device "cpu", "cuda" or "cuda:1"; raises ConfigurationError for an unknown or missing device."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(
            f'device must be "cpu", "cuda" or one GPU of several such as "cuda:1", got "{name}"'
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(f'device "{name}" is not available: torch finds no GPU; set device = "cpu"')
    return device


def has_bfloat16_instructions() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware: AMX-BF16 or AVX512-BF16.

    Others emulate bfloat16, slower than float32.
    """
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))
