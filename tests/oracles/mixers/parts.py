"""What the oracles of mixers share: maps of one input, by the names of the parameters."""

from collections.abc import Callable

import torch
from torch import Tensor

Get = Callable[[str], Tensor | None]
"""A parameter of the mixer by its name; None if there is none."""


def apply_map(get: Get, name: str, x: Tensor) -> Tensor:
    """W x + b, or W2 W1 x + b for a map of low rank."""
    first, last = get(f"maps.{name}.0.weight"), f"maps.{name}"
    if first is not None:
        x, last = first @ x, f"{last}.1"
    y, bias = take(get, f"{last}.weight") @ x, get(f"{last}.bias")
    return y if bias is None else y + bias


def take(get: Get, name: str) -> Tensor:
    """A parameter that the mixer has."""
    found = get(name)
    assert found is not None, name
    return found


def vector(get: Get, name: str) -> Tensor:
    return take(get, f"vectors.{name}")


def silu(x: Tensor) -> Tensor:
    return x * x.sigmoid()


def unit(x: Tensor) -> Tensor:
    return x / (x @ x).sqrt()


def softplus(x: Tensor) -> Tensor:
    return (1 + x.exp()).log()


def make_rotation(angles: Tensor, width: int) -> Tensor:
    """The matrix that turns channels 2i and 2i + 1 by angle i."""
    pairs = len(angles)
    rows = [[torch.zeros(()).double() for _ in range(width)] for _ in range(width)]
    for i, angle in enumerate(angles):
        first, second = 2 * i, 2 * i + 1
        rows[first][first] = rows[second][second] = angle.cos()
        rows[first][second], rows[second][first] = -angle.sin(), angle.sin()
    for i in range(2 * pairs, width):
        rows[i][i] = torch.ones(()).double()
    return torch.stack([torch.stack(row) for row in rows])
