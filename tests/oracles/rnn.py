"""The simple recurrent language model one sentence, one word and one layer at a time, from its equation."""

import torch
from torch import Tensor

from tests.oracles.lstm import Parameters, kept, output_logits

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


def regularised_rnn_logits(config, parameters: Parameters, tokens_BT: Tensor, masks) -> list[list[Tensor]]:
    """The same under the masks of each layer and that of the output, as the model draws them."""
    layers, output = masks
    logits = []
    for row, words in enumerate(tokens_BT):
        values = [parameters["embedding.weight"][word] for word in words.tolist()]
        for layer, mask in enumerate(layers):
            weights = [
                parameters[f"layers.{layer}.rnn.{name}_l0"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            values = _regularised_layer(ACTIVATIONS[config.activation], values, weights, mask, row)
        if output is not None:
            values = [h * output[row, 0] for h in values]
        logits.append(output_logits(config, parameters, values))
    return logits


def _regularised_layer(f, inputs: list[Tensor], weights: list[Tensor], masks, row: int) -> list[Tensor]:
    W, R, b_input, b_recurrent = weights
    h = W.new_zeros(R.shape[0])
    outputs = []
    for t, x in enumerate(inputs):
        x = x if masks.input_B1E is None else x * masks.input_B1E[row, 0]
        read = h if masks.state_BH is None else h * masks.state_BH[row]
        candidate = f(W @ x + R @ read + b_input + b_recurrent)
        if masks.candidate_TBH is not None:
            candidate = candidate * masks.candidate_TBH[t, row]
        h = kept(h, candidate, masks.kept_hidden_TBH, t, row)
        outputs.append(h)
    return outputs
