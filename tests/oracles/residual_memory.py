"""The residual memory network from its equations, one vector at a time, and over windows as in the paper.

Beneš, Baskar and Burget (2017), equations 1 to 3.
"""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from memtune.models import logits
from memtune.models.families.residual_memory import ResidualMemoryConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase, keep_initial_weights
from tests.oracles.output_layers import Parameters

Layer = list[list[Tensor]]
"""layer[b][t], a vector of H."""


def compute_residual_memory_logits(
    config, parameters: Parameters, tokens_BT: Tensor, running: Mapping[str, Tensor] | None = None
) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary.

    Batch norm takes its statistics from `running`, as in evaluation, or from these texts, as in training.
    """
    layers = [[[parameters["embedding.weight"][word] for word in words] for words in tokens_BT.tolist()]]
    for layer in range(1, config.layers + 1):
        sums = [
            [
                _compute_preactivation(config, parameters, layers, layer, b, t)
                for t in range(tokens_BT.shape[1])
            ]
            for b in range(len(tokens_BT))
        ]
        if config.batch_norm:
            sums = _normalise_batch(parameters, f"layers.{layer - 1}.normalise", sums, running)
        layers.append([[a * (a > 0) for a in row] for row in sums])
    W, b = parameters["output.weight"], parameters["output.bias"]
    return [[W @ h + b for h in row] for row in layers[-1]]


def _compute_preactivation(
    config, parameters: Parameters, layers: list[Layer], layer: int, b: int, t: int
) -> Tensor:
    """The input of the ReLU of a layer, before batch norm."""
    name = f"layers.{layer - 1}"
    C, P = parameters[f"{name}.current_HH"], parameters[get_past_parameter_name(config, layer)]
    now, before = layers[layer - 1][b][t], t - get_delay(config, layer)
    past = layers[layer - 1][b][before] if before >= 0 else torch.zeros_like(now)
    total = C @ now + (P @ (C @ past) if config.past == "shared" else P @ past)
    if config.residual_interval and layer % config.residual_interval == 0:
        total = total + layers[layer - config.residual_interval][b][t]
    return total if config.batch_norm else total + parameters[f"{name}.normalise.shift_H"]


def get_delay(config, layer: int) -> int:
    return 1 + (layer - 1) // config.phi


def get_past_parameter_name(config, layer: int) -> str:
    """The name of a layer's P; a shared P has the name of the first layer."""
    return f"layers.{0 if config.past == 'shared' else layer - 1}.past_HH"


def _normalise_batch(
    parameters: Parameters, name: str, sums: Layer, running: Mapping[str, Tensor] | None
) -> Layer:
    every = torch.stack([a for row in sums for a in row])
    if running is None:
        mean, variance = every.mean(0), every.var(0, correction=0)
    else:
        mean, variance = running[f"{name}.mean_H"], running[f"{name}.variance_H"]
    scale, shift = parameters[f"{name}.scale_H"], parameters[f"{name}.shift_H"]
    return [[scale * (a - mean) / (variance + 1e-3).sqrt() + shift for a in row] for row in sums]


def compute_window_hidden(config, parameters: Parameters, windows_NW: Tensor) -> Tensor:
    """hidden_NH of the last word of each window of `context_words` words; every window is computed alone.

    Each layer computes only the positions that the layers above read. There is no batch norm.
    """
    places = _find_cone(config)
    hidden = {place: parameters["embedding.weight"][windows_NW[:, -1 - place]] for place in places[0]}
    below = [hidden]
    for layer in range(1, config.layers + 1):
        name = f"layers.{layer - 1}"
        now = torch.cat([below[-1][place] for place in places[layer]])
        past = torch.cat([below[-1][place + get_delay(config, layer)] for place in places[layer]])
        total = (
            now @ parameters[f"{name}.current_HH"].T
            + past @ parameters[get_past_parameter_name(config, layer)].T
        )
        total = total + parameters[f"{name}.normalise.shift_H"]
        if config.residual_interval and layer % config.residual_interval == 0:
            total = total + torch.cat([below[-config.residual_interval][place] for place in places[layer]])
        below.append(dict(zip(places[layer], total.relu().chunk(len(places[layer])), strict=True)))
    return below[-1][0]


def _find_cone(config) -> list[list[int]]:
    """For each layer from the embeddings up, the distances back at which it is read: places[L] is [0]."""
    places = [[0]]
    for layer in range(config.layers, 0, -1):
        places.append(sorted({p + step for p in places[-1] for step in (0, get_delay(config, layer))}))
    return places[::-1]


def move_batch_norm(model) -> None:
    """Running statistics of a few batches, and scales and shifts that differ between units."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(12 + seed)
        logits(model, torch.randint(model.vocabulary_size, (3, 13 + seed), generator=generator))
    if model.config.batch_norm:
        for layer in model.layers:
            layer.normalise.scale_H.data.copy_(torch.linspace(0.5, 1.5, model.config.width))
            layer.normalise.shift_H.data.copy_(torch.linspace(0.4, -0.4, model.config.width))


def bind_running_statistics(model):
    """The oracle with the running statistics of the model, as in evaluation."""
    return partial(compute_residual_memory_logits, running=dict(model.named_buffers()))


def make_case(
    lengths: tuple[int, ...],
    float32_lengths: tuple[int, ...] = (),
    cuts: tuple[int, ...] = (),
    rows: int = 3,
    is_training: bool = False,
    **fields,
) -> OracleCase:
    """Seven layers with delays 1, 1, 1, 2, 2, 2, 3: a context of 13 words.

    The cuts are inside, at the end of and after the first context.
    """
    return OracleCase(
        config=ResidualMemoryConfig(**{"width": 6, "layers": 7, "phi": 3, "initial_range": 0.6} | fields),
        logits=compute_residual_memory_logits if is_training else None,
        bind=None if is_training else bind_running_statistics,
        prepare=keep_initial_weights if is_training else move_batch_norm,
        is_training=is_training,
        lengths=lengths,
        float32_lengths=float32_lengths,
        cuts=cuts,
        cut_length=30,
        rows=rows,
    )


IDENTITY = "e3185c2ad2ed84c5"
CASES = {
    **{
        f"past {past}, batch norm {batch_norm}": make_case(
            (1, 2), (30,), (1, 5, 12, 13, 25), past=past, batch_norm=batch_norm
        )
        for past in ("per_layer", "shared")
        for batch_norm in (False, True)
    },
    **{
        f"statistics of the batch, past {past}": make_case((16,), past=past, is_training=True)
        for past in ("per_layer", "shared")
    },
    **{
        f"residual interval {interval}": make_case((16,), residual_interval=interval)
        for interval in (0, 1, 2, 3, 4, 8)
    },
    **{
        f"phi {phi}": make_case((40,), rows=1, phi=phi, batch_norm=False, is_training=True)
        for phi in (1, 2, 7)
    },
}
EXAMPLES = [
    ResidualMemoryConfig(**EXAMPLE_SIZE, layers=4, phi=2),
    ResidualMemoryConfig(**EXAMPLE_SIZE, layers=3, past="shared", residual_interval=2, batch_norm=False),
]
