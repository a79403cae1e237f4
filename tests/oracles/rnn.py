"""The simple recurrent language model one sentence, one word and one layer at a time, from its equation."""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters, output_logits

ACTIVATIONS = {
    "tanh": torch.tanh,
    "sigmoid": lambda a: 1 / (1 + torch.exp(-a)),
    "relu": lambda a: a * (a > 0),
}


def rnn_logits(config, parameters: Parameters, tokens_BT: Tensor) -> list[list[Tensor]]:
    """logits[b][t], a vector over the vocabulary, from a zero state."""
    return [_sentence(config, parameters, words.tolist()) for words in tokens_BT]


def _sentence(config, parameters: Parameters, words: list[int]) -> list[Tensor]:
    f = ACTIVATIONS[config.activation]
    hidden = [parameters["embedding.weight"].new_zeros(config.width) for _ in range(config.layers)]
    outputs = []
    for word in words:
        x = parameters["embedding.weight"][word]
        for layer in range(config.layers):
            W, R, b, b_recurrent = (
                parameters[f"layers.{layer}.rnn.{name}_l0"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            x = hidden[layer] = f(W @ x + R @ hidden[layer] + b + b_recurrent)
        outputs.append(x)
    return output_logits(config, parameters, outputs)
