"""The attention-based LSTM one sentence, one word and one slot at a time, from its equations.

Yogatama et al. (2018), section 2; the split of a state into key, value and predict is that of Daniluk et al.
(2017), section 2.3.
"""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters, lstm_stack, output_logits


def attention_lstm_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_sentence(config, parameters, words.tolist())[0] for words in tokens_BT]


def attention_lstm_weights(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """weights[b][t], one weight for each previous state within reach, the oldest first."""
    return [_sentence(config, parameters, words.tolist())[1] for words in tokens_BT]


def _sentence(config, parameters: Parameters, words: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    embeddings = [parameters["embedding.weight"][word] for word in words]
    states = lstm_stack(parameters, "stack.lstm", config.layers, embeddings)
    states = [torch.zeros_like(states[0]), *states]  # h_0, h_1, ..., h_T
    W_hm = parameters["combination.memory.weight"]
    W_hh = parameters["combination.hidden.weight"]
    combined, attention = [], []
    for t in range(1, len(states)):
        query, _, predict = _parts(config, states[t])
        previous = [_parts(config, states[i]) for i in range(max(0, t - config.memory_size), t)]
        scores = [_score(config, parameters, key, query) for key, _, _ in previous]
        a = torch.stack(scores).softmax(0)
        m = sum(weight * value for weight, (_, value, _) in zip(a, previous, strict=True))
        combined.append(W_hh @ predict + W_hm @ m)
        attention.append(a)
    return output_logits(config, parameters, combined), attention


def _parts(config, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Key, value and what predicts."""
    if config.split == "none":
        return h, h, h
    third = config.width // 3
    return h[:third], h[third : 2 * third], h[2 * third :]


def _score(config, parameters: Parameters, key: Tensor, query: Tensor) -> Tensor:
    match config.score:
        case "additive":
            W_m, W_h = parameters["score.key.weight"], parameters["score.query.weight"]
            return parameters["score.score.weight"][0] @ (W_m @ key + W_h @ query).tanh()
        case "bilinear":
            return key @ parameters["score.query.weight"] @ query
        case "printed":
            return parameters["score.score.weight"][0] @ key
