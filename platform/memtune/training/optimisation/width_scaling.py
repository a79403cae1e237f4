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

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from memtune.models.outputs.output_layer import SoftmaxOutput


@dataclass(frozen=True)
class ScaledParameter:
    """A parameter at both widths."""

    name: str
    ratio: float
    """Width of its input relative to the base model; 1 for embeddings, biases and vectors."""
    power: float
    """Its deviation is that of the base model by 1 / ratio to this power; 0 for those that keep their own."""
    parameter: nn.Parameter
    base: nn.Parameter


def find_rate_scales(model: nn.Module, base: nn.Module) -> dict[str, float]:
    """By parameter, the factor of the learning rate; `base` is the model at the base width."""
    return {each.name: 1 / each.ratio for each in _compare_parameters(model, base)}


@torch.no_grad()
def rescale_initial_values(model: nn.Module, base: nn.Module) -> None:
    """Scale the initial matrices of `model` to the deviations of table 3.

    Families initialise differently, so the deviation that a matrix has is measured. A constant stays.
    """
    for each in _compare_parameters(model, base):
        if each.power and (own := each.parameter.std().item()) > 0:
            each.parameter.mul_(each.base.std().item() * each.ratio**-each.power / own)


def _compare_parameters(model: nn.Module, base: nn.Module) -> Iterator[ScaledParameter]:
    """Every parameter with the ratio and the power of its kind."""
    # The matrices that are multiplied with vectors; other tables are read by row.
    maps = {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.RNNBase | SoftmaxOutput)
        for name, _ in module.named_parameters(recurse=False)
    }
    others = dict(base.named_parameters())
    for name, parameter in model.named_parameters():
        differs = [own != other for own, other in zip(parameter.shape, others[name].shape, strict=True)]
        ratio, power = 1.0, 0.0
        if len(differs) > 1 and differs[-1] and (any(differs[:-1]) or name in maps):
            ratio = parameter.shape[-1] / others[name].shape[-1]
            power = 0.5 if any(differs[:-1]) else 1.0
        yield ScaledParameter(name, ratio, power, parameter, others[name])
