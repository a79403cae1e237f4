"""Maximal update parametrisation (muP): a learning rate found at one width suits others.

Yang et al. (2021), "Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer",
table 3 (the form without multipliers), for Adam. Scales are relative to the same model at a base width, where
muP and the standard parametrisation are the same. r is the width of a matrix's input relative to the base's:

| parameter | variance of the initial values | learning rate |
|---|---|---|
| embeddings, biases, vectors | as at the base width | 1 |
| matrices between hidden layers | 1 / r of the base model's | 1 / r |
| matrices into a fixed number of outputs | 1 / r^2 of the base model's | 1 / r |

A parameter's kind follows from the dimensions in which its shape differs between the two widths. An attention
keeps the scale of its scores, where the paper's definition 4.1 divides by the width instead of its root.
"""

import torch
from torch import nn

from memtune.models.outputs.output_layer import SoftmaxOutput


@torch.no_grad()
def scale_to_width(model: nn.Module, base: nn.Module) -> dict[str, float]:
    """Scale the initial matrices of `model` to the deviations of table 3; return the factor of the learning
    rate of each parameter.

    `base` is the model at the base width. Families initialise differently, so the deviation that a matrix has
    is measured. A constant stays.
    """
    # The matrices that are multiplied with vectors; other tables are read by row.
    maps = {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.RNNBase | SoftmaxOutput)
        for name, _ in module.named_parameters(recurse=False)
    }
    others, rate_scales = dict(base.named_parameters()), dict[str, float]()
    for name, parameter in model.named_parameters():
        other, rate_scales[name] = others[name], 1.0
        differs = [own != size for own, size in zip(parameter.shape, other.shape, strict=True)]
        if len(differs) > 1 and differs[-1] and (any(differs[:-1]) or name in maps):
            ratio = parameter.shape[-1] / other.shape[-1]
            rate_scales[name] = 1 / ratio
            power = 0.5 if any(differs[:-1]) else 1.0
            if (deviation := parameter.std().item()) > 0:
                parameter.mul_(other.std().item() * ratio**-power / deviation)
    return rate_scales
