"""Rotary positions: pairs of numbers turned by angles (Su et al. 2021, 2104.09864).

Shapes: K numbers of a vector, P pairs; leading dimensions are free.
"""

import torch
from torch import Tensor

LONGEST_PERIOD = 10_000.0
"""Words over 2 pi of the slowest pair of a long vector (section 3.2.2)."""


def list_speeds(width: int, like: Tensor) -> Tensor:
    """Angles per word of the pairs of vectors of a width, (P,), with device and dtype of a tensor."""
    pairs = width // 2
    pair_P = torch.arange(pairs, device=like.device, dtype=like.dtype)
    return LONGEST_PERIOD ** (-pair_P / max(pairs, 1))


def rotate(vectors_K: Tensor, angles_P: Tensor) -> Tensor:
    """Turn the pairs of numbers i and P + i by the angles; an odd number stays as it is."""
    pairs = angles_P.shape[-1]
    first, second, rest = torch.split(vectors_K, [pairs, pairs, vectors_K.shape[-1] - 2 * pairs], dim=-1)
    cos, sin = angles_P.cos(), angles_P.sin()
    return torch.cat([first * cos - second * sin, first * sin + second * cos, rest], dim=-1)
