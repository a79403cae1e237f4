"""The attention-based LSTM one sentence and one word at a time, from its equations.

Yogatama et al. (2018), section 2; the split of a state into key, value and predict is that of Daniluk et al.
(2017), section 2.3.
"""

from typing import Any

import torch
from torch import Tensor

from memtune.models.families.attention_lstm import AttentionLSTMConfig
from tests.oracles.cases import EXAMPLE_SIZE, OracleCase
from tests.oracles.lstm import compute_output_logits, run_lstm_stack
from tests.oracles.output_layers import Parameters


def compute_attention_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_read_sentence(config, parameters, words.tolist())[0] for words in tokens_BT]


def compute_attention_lstm_weights(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """weights[b][t], one weight for each previous state within reach, the oldest first."""
    return [_read_sentence(config, parameters, words.tolist())[1] for words in tokens_BT]


def _read_sentence(config, parameters: Parameters, words: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    embeddings = [parameters["embedding.weight"][word] for word in words]
    states = run_lstm_stack(parameters, "stack.lstm", config.layers, embeddings)
    states = [torch.zeros_like(states[0]), *states]  # h_0, h_1, ..., h_T
    parts = [_split_hidden(config, h) for h in states]
    W_hm = parameters["combination.memory.weight"]
    W_hh = parameters["combination.hidden.weight"]
    combined, attention = [], []
    for t in range(1, len(states)):
        query, _, predict = parts[t]
        keys, values, _ = zip(*parts[max(0, t - config.memory_size) : t], strict=True)
        a = _score(config, parameters, torch.stack(keys), query).softmax(0)
        combined.append(W_hh @ predict + W_hm @ (a @ torch.stack(values)))
        attention.append(a)
    return compute_output_logits(config, parameters, combined), attention


def _split_hidden(config, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The key, the value and the predicting part of a state."""
    if config.split == "none":
        return h, h, h
    third = config.width // 3
    return h[:third], h[third : 2 * third], h[2 * third :]


def _score(config, parameters: Parameters, keys: Tensor, query: Tensor) -> Tensor:
    """One score for each key."""
    match config.score:
        case "additive":
            W_m, W_h = parameters["score.key.weight"], parameters["score.query.weight"]
            return (keys @ W_m.T + W_h @ query).tanh() @ parameters["score.score.weight"][0]
        case "bilinear":
            return keys @ parameters["score.query.weight"] @ query
        case "printed":
            return keys @ parameters["score.score.weight"][0]
        case other:
            raise ValueError(f"the oracle has no score {other}")


def make_case(
    lengths: tuple[int, ...] = (),
    float32_lengths: tuple[int, ...] = (),
    cuts: tuple[int, ...] = (),
    rows: int = 2,
    **fields,
) -> OracleCase:
    """Wide initial values make attention uneven, so that reading a wrong slot changes the result."""
    return OracleCase(
        config=AttentionLSTMConfig(**{"width": 7, "memory_size": 4, "initial_range": 0.8} | fields),
        logits=compute_attention_lstm_logits,
        lengths=lengths,
        float32_lengths=float32_lengths,
        cuts=cuts,
        cut_length=21,
        rows=rows,
    )


SCORES = ("additive", "bilinear", "printed")
OPTIONS: dict[str, dict[str, Any]] = {
    f"{score} score, split {split}": {"score": score, "split": split}
    for score in SCORES
    for split in ("none", "key_value_predict")
}
IDENTITY = "502f354e281cc97a"
CASES = {
    **{
        f"window of 15, {name}": make_case((1, 2, 20), memory_size=15, **options)
        for name, options in OPTIONS.items()
    },
    # Cuts inside, at the end of and after the first window of 4 states.
    **{
        f"window of 4, {name}": make_case((), (21,), (1, 3, 4, 5, 19), **options)
        for name, options in OPTIONS.items()
    },
    "three layers": make_case((8,), layers=3),
    "untied": make_case((8,), tie_output=False),
    "window of 2": make_case((8,), memory_size=2),
    # Three uneven blocks, windows as long as a block, and of one state.
    **{
        f"blocks, window of {memory_size}, {score} score": make_case(
            (length,), rows=1, width=3, memory_size=memory_size, score=score
        )
        for length, memory_size, score in (
            *((193, 15, score) for score in SCORES),
            (129, 64, "additive"),
            (129, 64, "bilinear"),
            (129, 1, "additive"),
        )
    },
}
EXAMPLES = [
    AttentionLSTMConfig(**EXAMPLE_SIZE, memory_size=3, layers=2, recurrent_dropout=0.2),
    AttentionLSTMConfig(**EXAMPLE_SIZE, memory_size=4, score="bilinear", tie_output=False),
    AttentionLSTMConfig(**EXAMPLE_SIZE, memory_size=4, score="printed", split="key_value_predict"),
]
