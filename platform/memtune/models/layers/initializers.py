"""Initial values of parameters."""

import torch
from torch import nn


@torch.no_grad()
def initialise_uniform(module: nn.Module, bound: float) -> None:
    """Draw every parameter, also embeddings and biases, from U(-bound, bound).

    Tran et al. (2016), section 4.2.
    """
    for parameter in module.parameters():
        parameter.uniform_(-bound, bound)
