"""Softmax attention one pair of words at a time; PaTH by products of its matrices."""

import math

import torch
from torch import Tensor

from tests.oracles.mixers.parts import Get, apply_map, make_rotation, unit


def read_attention(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    """The outputs of all heads after each input."""
    heads = [_read_head(config, get, inputs, head) for head in range(config.heads)]
    return [torch.cat(outputs) for outputs in zip(*heads, strict=True)]


def _read_head(config, get: Get, inputs: list[Tensor], head: int) -> list[Tensor]:
    def take(name: str, x: Tensor) -> Tensor:
        return apply_map(get, name, x).chunk(config.heads)[head]

    keys, values = [take("key", x) for x in inputs], [take("value", x) for x in inputs]
    K = len(keys[0])
    outputs = []
    for i, x in enumerate(inputs):
        q, scores, read = take("query", x), [], []
        between, forgotten = torch.eye(K).double(), torch.zeros(()).double()
        for j in range(i, -1, -1):
            if config.window is not None and i - j >= config.window:
                break
            if config.positions == "rotary":
                speeds = torch.tensor([10_000.0 ** (-p / max(K // 2, 1)) for p in range(K // 2)]).double()
                between = make_rotation(speeds * (j - i), K)
            scores.append(q @ between @ keys[j] / math.sqrt(K) + forgotten)
            read.append(values[j])
            if config.positions == "path":
                w, b = unit(take("direction", inputs[j])), 2 * take("strength", inputs[j]).sigmoid()
                between = between @ (torch.eye(K).double() - b * torch.outer(w, w))
            if config.forget_gate:
                forgotten = forgotten + take("forget", inputs[j]).sigmoid().log().squeeze()
        weights = torch.stack(scores).softmax(0)
        outputs.append(weights @ torch.stack(read))
    return outputs
