"""The matrix memory as products of K x K matrices, and mLSTM and Mamba-3 as their papers write them.

mLSTM is computed without its stabiliser. A rotation turns the memory and not the keys: with R the rotation
of a word, S_t = R' D S_{t-1} + ..., which is the complex transition of Mamba-3 and the xPos-free RetNet.
"""

import math
from typing import Any

import torch
from torch import Tensor

from tests.oracles.mixers.parts import Get, apply_map, make_rotation, silu, softplus, unit, vector


def read_matrix_memory(config, get: Get, inputs: list[Tensor], depth: float) -> list[Tensor]:
    """The outputs of all heads after each input."""
    heads = [_read_head(config, get, inputs, head) for head in range(config.heads)]
    return [torch.cat(outputs) for outputs in zip(*heads, strict=True)]


def _read_head(config, get: Get, inputs: list[Tensor], head: int) -> list[Tensor]:
    def take(name: str, x: Tensor, steps: int = 1) -> list[Tensor]:
        """The head's values of a map for each step of the word."""
        return [part.chunk(config.heads)[head] for part in apply_map(get, name, x).chunk(steps)]

    n = config.steps
    outputs: list[Tensor] = []
    S: Any = None
    normaliser: Any = None
    last_k: Any = None
    last_v: Any = None
    for x in inputs:
        dt: Any = softplus(take("step", x)[0]) if get("maps.step.weight") is not None else None
        q, ks, vs = take("query", x)[0], take("key", x, n), take("value", x, n)
        q, ks = _treat_keys(config, get, head, q, ks)
        K, V = len(q), len(vs[0])
        if S is None:
            S, normaliser = torch.zeros(K, V).double(), torch.zeros(K).double()
            last_k, last_v = torch.zeros(K).double(), torch.zeros(V).double()
        decay = _compute_full_decay(config, get, take, head, x, dt, K)
        if config.read == "corrected":
            q = q - vector(get, "correction")[head] * ks[-1]
        identity = torch.eye(K).double()
        for i, (k, v) in enumerate(zip(ks, vs, strict=True)):
            D = decay if i == 0 else identity
            m = k / (k @ k).clamp_min(1e-5)
            b: Any = take("strength", x, n)[i].sigmoid() if get("maps.strength.weight") is not None else None
            b = b * 2 if b is not None and config.negative_eigenvalues else b
            match config.erase:
                case "none":
                    transition = D
                case "delta":
                    transition = (identity - b * torch.outer(k, m)) @ D
                case "closed_loop":
                    p = vector(get, "loop")[head].sigmoid() * m
                    transition = (identity - b * torch.outer(k, p)) @ D
                case "channel":
                    channels = take("erase", x, n)[i].sigmoid() * (2 if config.negative_eigenvalues else 1)
                    transition = (identity - torch.outer(k, channels * m)) @ D
                case "own_key":
                    a = take("erase", x, n)[i].sigmoid()
                    removal = unit(k * vector(get, "removal").chunk(config.heads)[head])
                    transition = D - torch.outer(a * removal, removal)
                    k = k * (1 + (a - 1) * vector(get, "blend").chunk(config.heads)[head])
            match config.write:
                case "plain":
                    u = v
                case "scaled":
                    u = b * v
                case "channel":
                    u = take("write", x, n)[i].sigmoid() * v
                case "step":
                    u = dt * v
                case "exponential":
                    u = take("input", x)[0].exp() * v
                case "trapezoid":
                    u = take("share", x)[0].sigmoid() * dt * v
            S = transition @ S + torch.outer(k, u)
            if config.write == "exponential":
                normaliser = transition @ normaliser + take("input", x)[0].exp() * k
        if config.write == "trapezoid":
            weight = (1 - take("share", x)[0].sigmoid()) * dt
            S = S + torch.outer(decay @ last_k, weight * last_v)
            last_k, last_v = ks[-1], vs[-1]
        output = S.T @ q
        if config.write == "exponential":
            output = output / torch.maximum((normaliser @ q).abs(), torch.ones(()).double())
        if config.skip:
            output = output + vector(get, "skip")[head] * vs[-1]
        outputs.append(output)
    return outputs


def _treat_keys(config, get: Get, head: int, q: Tensor, ks: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    match config.keys:
        case "plain":
            return q / math.sqrt(len(q)), ks
        case "unit":
            return unit(silu(q)), [unit(silu(k)) for k in ks]
    return _norm(config, get, "query", head, q), [_norm(config, get, "key", head, k) for k in ks]


def _norm(config, get: Get, name: str, head: int, x: Tensor) -> Tensor:
    normed = x / ((x * x).mean() + 1e-5).sqrt()
    weight, bias = (vector(get, f"{name}_{part}").chunk(config.heads)[head] for part in ("weight", "bias"))
    return normed * weight + bias


def _compute_full_decay(config, get: Get, take, head: int, x: Tensor, dt: Any, K: int) -> Tensor:
    """The decay with the rotation."""
    D = torch.diag(_compute_decay(config, get, take, head, x, dt, K))
    match config.rotation:
        case "none":
            return D
        case "position":
            angles = torch.tensor([10_000.0 ** (-i / (K // 2)) for i in range(K // 2)]).double()
        case "data":
            angles = take("angle", x)[0] * dt
    return make_rotation(angles, K).T @ D


def _compute_decay(config, get: Get, take, head: int, x: Tensor, dt: Any, K: int) -> Tensor:
    """The diagonal of D."""
    match config.decay, config.decay_map:
        case "none", _:
            return torch.ones(K).double()
        case "head", _:
            return torch.full((K,), 1 - 2.0 ** (-5 - head)).double()
        case "number", "softplus":
            return (-vector(get, "rate")[head].exp() * dt).exp().expand(K)
    y = take("decay", x)[0]
    match config.decay_map:
        case "softplus":
            g = (-vector(get, "rate")[head].exp() * softplus(y)).exp()
        case "sigmoid":
            g = y.sigmoid() ** config.decay_power
        case "bounded":
            g = (-math.exp(-0.5) * y.sigmoid()).exp()
        case "product":
            g = (-softplus(y) * dt).exp()
    return g.expand(K)
