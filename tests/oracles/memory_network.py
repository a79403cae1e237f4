"""The memory network as a language model, one word, one hop and one slot at a time.

Sukhbaatar et al. (2015), sections 2 and 5.
"""

from typing import Any

import torch
from torch import Tensor

from memtune.models.families.memory_network import MemoryNetworkConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.output_layers import Parameters


def compute_memory_network_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary."""
    W = parameters["output.weight"]
    return [[W @ u for u, _ in _read_sentence(config, parameters, words.tolist())] for words in tokens_BT]


def compute_memory_network_attention(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """weights[b][t] of the last hop, one for each existing word, the oldest first."""
    return [[p for _, p in _read_sentence(config, parameters, words.tolist())] for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> list[tuple[Tensor, Tensor]]:
    windows = [words[max(0, t + 1 - config.memory_size) : t + 1] for t in range(len(words))]
    return [_run_hops(config, parameters, window) for window in windows]


def _run_hops(config, parameters: Parameters, window: list[int]) -> tuple[Tensor, Tensor]:
    A, C, H = (parameters[f"{name}.weight"] for name in ("input_table", "output_table", "hop"))
    m, c = A[window], C[window]
    if config.temporal_encoding:  # the most recent word reads the last row
        first = config.memory_size - len(window)
        m, c = m + parameters["temporal_keys"][first:], c + parameters["temporal_values"][first:]
    u = torch.full_like(A[0], 0.1)
    for _ in range(config.hops):
        p = m @ u
        if not config.linear_start:  # section 4.2: the softmax is left out at first
            p = p.softmax(0)
        u = p @ c + H @ u
        if config.rectify_half:
            half = config.width // 2
            u = torch.cat([u[:half], u[half:] * (u[half:] > 0)])
    return u, p


def make_case(
    lengths: tuple[int, ...] = (9,), float32_lengths: tuple[int, ...] = (), rows: int = 2, **fields
) -> OracleCase:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result.

    The cuts are inside, at the end of and after the first window of 4 words.
    """
    return OracleCase(
        config=MemoryNetworkConfig(**{"width": 5, "memory_size": 4, "initial_range": 0.9} | fields),
        logits=compute_memory_network_logits,
        lengths=lengths,
        float32_lengths=float32_lengths,
        cuts=(1, 3, 4, 10),
        rows=rows,
    )


OPTIONS: dict[str, dict[str, Any]] = {
    f"hops {hops}, temporal {temporal_encoding}, rectified {rectify_half}": {
        "hops": hops,
        "temporal_encoding": temporal_encoding,
        "rectify_half": rectify_half,
    }
    for hops in (1, 3)
    for temporal_encoding in (False, True)
    for rectify_half in (False, True)
}
TWO_HOPS: dict[str, Any] = {"memory_size": 15, "hops": 2}
IDENTITY = "cfd34b91064652d8"
CASES = {
    **{name: make_case(**options) for name, options in OPTIONS.items()},
    **{
        f"window of 15, {name}": make_case((), (20,), rows=1, memory_size=15, **options)
        for name, options in OPTIONS.items()
    },
    "two hops, rectified": make_case(hops=2, rectify_half=True),
    "two hops, rectified, no temporal encoding": make_case(
        hops=2, rectify_half=True, temporal_encoding=False
    ),
    # Texts within the window of 15 words, and longer than two blocks of 64 steps.
    "two hops": make_case((1, 2, 131), rows=1, **TWO_HOPS),
    "two hops, no temporal encoding": make_case((1, 2, 131), rows=1, temporal_encoding=False, **TWO_HOPS),
    "linear start": make_case((1, 131), rows=1, linear_start=True, initial_range=0.3, **TWO_HOPS),
}
EXAMPLES = [
    MemoryNetworkConfig(**EXAMPLE_SIZE, memory_size=4),
    MemoryNetworkConfig(**EXAMPLE_SIZE, memory_size=3, hops=3, temporal_encoding=False, rectify_half=True),
]
