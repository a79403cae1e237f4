"""MesaNet by the inverse of its matrix, one head and one word at a time."""

import torch
from torch import Tensor

from tests.oracles.mixers.parts import Get, apply_map, silu, softplus, unit, vector


def read_mesa(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    """The outputs of all heads after each input."""
    heads = []
    for head in range(config.heads):
        ridge = 0.25 + softplus(vector(get, "ridge").chunk(config.heads)[head])
        C = S = None
        outputs = []
        for x in inputs:
            q, k, v, g, b = (
                apply_map(get, name, x).chunk(config.heads)[head]
                for name in ("query", "key", "value", "decay", "strength")
            )
            q, k, g, b = unit(silu(q)), unit(silu(k)), g.sigmoid(), b.sigmoid()
            C = b * torch.outer(k, k) + (0 if C is None else g * C)
            S = b * torch.outer(k, v) + (0 if S is None else g * S)
            outputs.append(S.T @ torch.linalg.inv(C + torch.diag(ridge)) @ q)
        heads.append(outputs)
    return [torch.cat(outputs) for outputs in zip(*heads, strict=True)]
