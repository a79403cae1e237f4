"""The memory network as a language model, one word, one hop and one slot at a time.

Sukhbaatar et al. (2015), sections 2 and 5.
"""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters


def memory_network_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary."""
    W = parameters["output.weight"]
    return [[W @ u for u, _ in _sentence(config, parameters, words.tolist())] for words in tokens_BT]


def memory_network_attention(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """weights[b][t] of the last hop, one for each word there is, the oldest first."""
    return [[p for _, p in _sentence(config, parameters, words.tolist())] for words in tokens_BT]


def _sentence(config, parameters: Parameters, words: list[int]) -> list[tuple[Tensor, Tensor]]:
    windows = [words[max(0, t + 1 - config.memory_size) : t + 1] for t in range(len(words))]
    return [_hops(config, parameters, window) for window in windows]


def _hops(config, parameters: Parameters, window: list[int]) -> tuple[Tensor, Tensor]:
    A, C, H = (parameters[f"{name}.weight"] for name in ("input_table", "output_table", "hop"))
    m, c = [A[word] for word in window], [C[word] for word in window]
    if config.temporal_encoding:  # the most recent word reads the last row
        rows = range(config.memory_size - len(window), config.memory_size)
        m = [m_i + parameters["temporal_keys"][row] for m_i, row in zip(m, rows, strict=True)]
        c = [c_i + parameters["temporal_values"][row] for c_i, row in zip(c, rows, strict=True)]
    u = torch.full_like(A[0], 0.1)
    for _ in range(config.hops):
        p = torch.stack([u @ m_i for m_i in m])
        if not config.linear_start:  # section 4.2: the softmax is left out at first
            p = p.softmax(0)
        o = sum(p_i * c_i for p_i, c_i in zip(p, c, strict=True))
        u = o + H @ u
        if config.rectify_half:
            half = config.width // 2
            u = torch.cat([u[:half], u[half:] * (u[half:] > 0)])
    return u, p
