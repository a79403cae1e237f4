"""The residual memory network from its equations, one vector at a time; and as windows, the way of the paper.

Beneš, Baskar and Burget (2017), equations 1 to 3.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters

Layer = list[list[Tensor]]
"""layer[b][t], a vector of H."""


def residual_memory_logits(
    config, parameters: Parameters, tokens_BT: Tensor, running: Mapping[str, Tensor] | None = None
) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary.

    Batch norm takes its statistics from `running`, as in evaluation, or from these texts, as in training.
    """
    layers = [[[parameters["embedding.weight"][word] for word in words] for words in tokens_BT.tolist()]]
    for layer in range(1, config.layers + 1):
        sums = [
            [_sum(config, parameters, layers, layer, b, t) for t in range(tokens_BT.shape[1])]
            for b in range(len(tokens_BT))
        ]
        if config.batch_norm:
            sums = _normalised(parameters, f"layers.{layer - 1}.normalise", sums, running)
        layers.append([[a * (a > 0) for a in row] for row in sums])
    W, b = parameters["output.weight"], parameters["output.bias"]
    return [[W @ h + b for h in row] for row in layers[-1]]


def _sum(config, parameters: Parameters, layers: list[Layer], layer: int, b: int, t: int) -> Tensor:
    """What the non-linearity of layer layer is of, before batch norm."""
    name = f"layers.{layer - 1}"
    C, P = parameters[f"{name}.current_HH"], parameters[past_name(config, layer)]
    now, before = layers[layer - 1][b][t], t - delay(config, layer)
    past = layers[layer - 1][b][before] if before >= 0 else torch.zeros_like(now)
    total = C @ now + (P @ (C @ past) if config.past == "shared" else P @ past)
    if config.residual_interval and layer % config.residual_interval == 0:
        total = total + layers[layer - config.residual_interval][b][t]
    return total if config.batch_norm else total + parameters[f"{name}.normalise.shift_H"]


def delay(config, layer: int) -> int:
    return 1 + (layer - 1) // config.phi


def past_name(config, layer: int) -> str:
    """A shared matrix goes by the name of the first layer's."""
    return f"layers.{0 if config.past == 'shared' else layer - 1}.past_HH"


def _normalised(
    parameters: Parameters, name: str, sums: Layer, running: Mapping[str, Tensor] | None
) -> Layer:
    every = torch.stack([a for row in sums for a in row])
    if running is None:
        mean, variance = every.mean(0), every.var(0, correction=0)
    else:
        mean, variance = running[f"{name}.mean_H"], running[f"{name}.variance_H"]
    scale, shift = parameters[f"{name}.scale_H"], parameters[f"{name}.shift_H"]
    return [[scale * (a - mean) / (variance + 1e-3).sqrt() + shift for a in row] for row in sums]


def window_hidden(config, parameters: Parameters, windows_NW: Tensor) -> Tensor:
    """hidden_NH of the last word of each window of `context_words` words, every window by itself.

    Of each layer only the cone is computed: the places that the layers above ask for. Without batch norm.
    """
    places = _cone(config)
    hidden = {place: parameters["embedding.weight"][windows_NW[:, -1 - place]] for place in places[0]}
    below = [hidden]
    for layer in range(1, config.layers + 1):
        name = f"layers.{layer - 1}"
        now = torch.cat([below[-1][place] for place in places[layer]])
        past = torch.cat([below[-1][place + delay(config, layer)] for place in places[layer]])
        total = now @ parameters[f"{name}.current_HH"].T + past @ parameters[past_name(config, layer)].T
        total = total + parameters[f"{name}.normalise.shift_H"]
        if config.residual_interval and layer % config.residual_interval == 0:
            total = total + torch.cat([below[-config.residual_interval][place] for place in places[layer]])
        below.append(dict(zip(places[layer], total.relu().chunk(len(places[layer])), strict=True)))
    return below[-1][0]


def _cone(config) -> list[list[int]]:
    """For each layer from the embeddings up, how far back it is needed: places[L] is [0]."""
    places = [[0]]
    for layer in range(config.layers, 0, -1):
        places.append(sorted({p + step for p in places[-1] for step in (0, delay(config, layer))}))
    return places[::-1]
