"""How parameters start."""

import torch
from torch import nn

__all__ = ["uniform"]


@torch.no_grad()
def uniform(module: nn.Module, bound: float) -> None:
    """Every parameter, embeddings and biases too, from U(-bound, bound): Tran et al. (2016), section 4.2."""
    for parameter in module.parameters():
        parameter.uniform_(-bound, bound)
