"""Gated units, sLSTM without its stabiliser, and the layers of the older families, one word at a time."""

import torch
from torch import Tensor

from tests.oracles.lstm import run_lstm_stack
from tests.oracles.mixers.parts import Get, apply_map, silu, take, vector
from tests.oracles.recurrent_memory import compose


def read_min_gru(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    h = torch.zeros_like(inputs[0])
    outputs = []
    for x in inputs:
        z = apply_map(get, "gate", x).sigmoid()
        h = (1 - z) * h + z * apply_map(get, "candidate", x)
        outputs.append(h)
    return outputs


def read_min_lstm(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    h = torch.zeros_like(inputs[0])
    outputs = []
    for x in inputs:
        f, i = apply_map(get, "forget", x).sigmoid(), apply_map(get, "input", x).sigmoid()
        h = f / (f + i) * h + i / (f + i) * apply_map(get, "candidate", x)
        outputs.append(h)
    return outputs


def read_rg_lru(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    h = torch.zeros_like(inputs[0])
    outputs = []
    for x in inputs:
        r, i = apply_map(get, "recurrence", x).sigmoid(), apply_map(get, "input", x).sigmoid()
        a = vector(get, "decay").sigmoid() ** (8 * r)
        h = a * h + (1 - a**2).sqrt() * (i * apply_map(get, "candidate", x))
        outputs.append(h)
    return outputs


def read_hgrn(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    h = torch.zeros_like(inputs[0])
    outputs = []
    for x in inputs:
        f = depth + (1 - depth) * apply_map(get, "forget", x).sigmoid()
        h = f * h + (1 - f) * silu(apply_map(get, "candidate", x))
        outputs.append(h)
    return outputs


def read_slstm(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    R = vector(get, "recurrent")
    heads, units, _ = R.shape
    h = c = n = torch.zeros(heads, units).double()
    outputs = []
    for x in inputs:
        gates = apply_map(get, "gates", x).view(heads, 4 * units) + torch.stack(
            [h[head] @ R[head] for head in range(heads)]
        )
        i, f, z, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * c + i.exp() * z.tanh()
        n = f.sigmoid() * n + i.exp()
        h = o.sigmoid() * c / n
        outputs.append(h.flatten())
    return outputs


def read_lstm(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = {f"lstm.{name}": take(get, f"stack.lstm.{name}") for name in names}
    return run_lstm_stack(weights, "lstm", 1, inputs)


def read_rnn(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    W, R, b, c = (take(get, f"rnn.{name}") for name in names)
    h = torch.zeros_like(inputs[0])
    outputs = []
    for x in inputs:
        h = (W @ x + b + R @ h + c).tanh()
        outputs.append(h)
    return outputs


def read_recurrent_memory(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    """Equations 1 to 3 and the composition over the hidden states of the LSTM; T is aligned on the right."""
    hidden = read_lstm(config, get, inputs, depth)
    parameters = {
        f"memory.composition.{name}": value
        for part in ("context", "hidden", "candidate")
        for name in (f"{part}.weight", f"{part}.bias")
        if (value := get(f"composition.{name}")) is not None
    }
    M, C, T = (take(get, name) for name in ("input_memory.weight", "output_memory.weight", "temporal_nD"))
    keys, values = (torch.stack([table @ x for x in inputs]) for table in (M, C))
    outputs = []
    for t, h in enumerate(hidden):
        read = slice(max(0, t + 1 - len(T)), t + 1)
        p = ((keys[read] + T[len(T) - len(keys[read]) :]) @ h).softmax(0)
        outputs.append(compose(config, parameters, p @ values[read], h))
    return outputs
